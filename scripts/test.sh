# shellcheck shell=bash
# `./dev test`: every test, against a database cluster and a Temporal server of its own that go when it ends.

run_tests() {
  local output code=0 packages=--workspace argument
  begin_session test
  install_tools
  install_test_tools
  start_test_database
  pick_port
  step "starting a Temporal server on port $REPLY"
  start_temporal "$REPLY" "" ""
  configure_tests "$REPLY"
  build tests

  for argument in "$@"; do
    case $argument in
      --) break ;;
      -p | -p?* | --package | --package=*) packages= ;;
    esac
  done
  [ "$(uname -s)" = Linux ] ||
    note "not tested here: clocks that are wrong (R22) and a full disk (R35), which need Linux's LD_PRELOAD"
  output=$run_dir/output.txt # two runs at once must not count each other's results
  step "testing (cargo test${packages:+ $packages} --no-fail-fast${*:+ $*})"
  # shellcheck disable=SC2016 # expanded by the inner shell
  attend bash -c 'set -o pipefail; output=$1; shift; "$@" | tee "$output"' tee "$output" \
    cargo test ${packages:+"$packages"} --no-fail-fast "$@" || code=$?
  step "$(count_results "$output") (exit code $code)"
  cp "$output" "$log_dir/output.txt"
  return "$code"
}

# The cluster of this run, in test_pg_port: start_test_database [durable].
start_test_database() {
  local kind=${1:-temporary}
  temporary_folder database
  pick_port
  test_pg_port=$REPLY
  REPLY=$(sed -n 1p "$run_dir"/*-database.folder)
  step "starting a throw-away database on port $test_pg_port ($kind)"
  start_cluster "$kind" "$REPLY" "$test_pg_port"
}

# What the tests are told. They make their own databases from the address of the maintenance database.
configure_tests() {
  local url cores
  url=$(database_url "$test_pg_port" postgres)
  export DATABASE_URL=$url MOCK_SWITCH_DATABASE_URL=$url TEST_DATABASE_URL=$url
  export TEST_TEMPORAL_ADDRESS=http://127.0.0.1:$1
  export TEMPORAL_CLI=$temporal TEST_PG_BIN=$pg_bin TEST_SCHEMATHESIS=$schemathesis TEST_PROMTOOL=$promtool
  export TEST_STANDARDWEBHOOKS=$standardwebhooks TEST_NATS_SERVER=$nats_server
  # A test's pool may take five of the twenty connections that sqlx has for all of them.
  cores=$(getconf _NPROCESSORS_ONLN)
  [ "$cores" -le 4 ] || export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
}

# The sum over the lines "test result: ok. 5 passed; 0 failed; 0 ignored; ..." of all test programs.
count_results() {
  awk '/test result:/ {
      for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) passed += $(i - 1)
        if ($i ~ /^failed;/) failed += $(i - 1)
        if ($i ~ /^ignored/) ignored += $(i - 1)
      }
    }
    END {
      printf "%d passed, %d failed", passed, failed
      if (ignored > 0) printf ", %d ignored", ignored
    }' "$1"
}
