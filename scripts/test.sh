# shellcheck shell=bash
# `./dev test`: runs every test against a database cluster and a Temporal server that exist only for the run.

# With --long as the first argument, also what takes a quarter of an hour more: the explorer's whole fast tier.
run_tests() {
  local output code=0 packages=--workspace argument
  if [ "${1:-}" = --long ]; then
    export TEST_LONG=1
    shift
  fi
  start_run test
  install_tools
  install_test_tools
  start_test_servers
  build tests

  for argument in "$@"; do
    case $argument in
      --) break ;;
      -p | -p?* | --package | --package=*) packages= ;;
    esac
  done
  [ "$(uname -s)" = Linux ] ||
    log_note "not tested on this system: wrong clocks (R22) and a full disk (R35), which need LD_PRELOAD on Linux"
  output=$run_dir/output.txt # one file per run, because several runs may be under way
  log_step "testing (cargo test${packages:+ $packages} --no-fail-fast${*:+ $*})"
  # shellcheck disable=SC2016 # expanded by the inner shell
  run_in_foreground bash -c 'set -o pipefail; output=$1; shift; "$@" | tee "$output"' tee "$output" \
    cargo test ${packages:+"$packages"} --no-fail-fast "$@" || code=$?
  log_step "$(count_results "$output") (exit code $code)"
  cp "$output" "$log_dir/output.txt"
  return "$code"
}

# Starts a database and a Temporal server for this run, and exports the settings of the tests.
start_test_servers() {
  start_test_database
  pick_port
  log_step "starting a Temporal server on port $REPLY"
  start_temporal "$REPLY" "" ""
  configure_tests "$REPLY"
}

# start_test_database [durable]: starts a cluster for this run; leaves its port in test_pg_port.
start_test_database() {
  local kind=${1:-temporary}
  make_temporary_folder database
  pick_port
  test_pg_port=$REPLY
  REPLY=$(sed -n 1p "$run_dir"/*-database.folder)
  log_step "starting a temporary database on port $test_pg_port ($kind)"
  start_cluster "$kind" "$REPLY" "$test_pg_port"
}

# configure_tests TEMPORAL_PORT: exports the settings of the tests. Each test creates its own database.
configure_tests() {
  local url cores
  url=$(database_url "$test_pg_port" postgres)
  export DATABASE_URL=$url MOCK_SWITCH_DATABASE_URL=$url TEST_DATABASE_URL=$url
  export TEST_TEMPORAL_ADDRESS=http://127.0.0.1:$1
  export TEMPORAL_CLI=$temporal TEST_PG_BIN=$pg_bin TEST_SCHEMATHESIS=$schemathesis TEST_PROMTOOL=$promtool
  export TEST_PLAYWRIGHT=$playwright TEST_CHROMIUM=$chromium
  export TEST_STANDARDWEBHOOKS=$standardwebhooks TEST_NATS_SERVER=$nats_server TEST_OIDC_PROVIDER=$oidc_provider
  export TEST_NODE=$node TEST_NODE_MODULES=$node_modules TEST_PYTHON_CLIENT=$python_client
  # A test's pool may take 5 of the 20 connections that sqlx allows for all tests of a process.
  cores=$(getconf _NPROCESSORS_ONLN)
  [ "$cores" -le 4 ] || export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
}

# Sums up the lines "test result: ok. 5 passed; 0 failed; 0 ignored; ..." of all test programs.
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
