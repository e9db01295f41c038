# shellcheck shell=bash
# `./dev test`: runs every test against a database cluster and a Temporal server that exist only for the run.

# With --long as the first argument, also what takes half an hour more: the explorer's whole fast tier, and more random cases.
run_tests() {
  local output code=0 packages=--workspace argument
  if [ "${1:-}" = --long ]; then
    export TEST_LONG=1
    shift
  fi
  start_run test
  remove_kept_databases
  install_tools
  install_test_tools
  start_test_servers
  build tests
  start_migrated_database

  [ "$(uname -s)" = Linux ] ||
    log_note "not tested on this system: wrong clocks (R22) and a full disk (R35), which need LD_PRELOAD on Linux"
  output=$run_dir/output.txt # one file per run, because several runs may be under way
  : >"$output"
  if [ $# = 0 ]; then
    run_all_programs "$output" || code=$?
    [ "$code" = 0 ] || keep_databases
    log_step "$(count_results "$output") (exit code $code)"
    cp "$output" "$log_dir/output.txt"
    return "$code"
  fi
  for argument in "$@"; do
    case $argument in
      --) break ;;
      -p | -p?* | --package | --package=*) packages= ;;
    esac
  done
  log_step "testing (cargo test${packages:+ $packages} --no-fail-fast${*:+ $*})"
  find_test_runner
  # shellcheck disable=SC2016 # expanded by the inner shell
  run_in_foreground bash -c 'set -o pipefail; output=$1; shift; "$@" | tee -a "$output"' tee "$output" \
    cargo --config "$REPLY" test ${packages:+"$packages"} --no-fail-fast "$@" || code=$?
  [ "$code" = 0 ] || keep_databases
  log_step "$(count_results "$output") (exit code $code)"
  cp "$output" "$log_dir/output.txt"
  return "$code"
}

# Leaves in REPLY the setting of cargo that runs each test program by run_test.sh. Under the target's name, it comes before a runner of the
# user's.
find_test_runner() {
  local target path
  target=$(rustc -vV | sed -n 's/^host: //p')
  path=$(printf '%s' "$root/scripts/run_test.sh" | sed 's/[\\"]/\\&/g')
  REPLY="target.$target.runner = [\"$path\"]"
}

# The programs that take longest. They are run first, so that none of them runs alone at the end; those that mostly wait alternate with those that
# compute, so that the processor is never without work.
long_programs="faults callbacks acceptance tier strategies ledger chaos rails replay http seeded page cli simulation it api scripted_temporal guide"

# run_all_programs OUTPUT: runs every test program, several at once, for most of them wait for servers and processes. The output of each
# comes as a whole when it has ended.
run_all_programs() {
  local output=$1 queue=$run_dir/queue at_once programs running=() ticker_pid name ended file i code=0 reported_s=$SECONDS
  # Several runs may be under way, with programs of the same names.
  local log_dir=$run_dir/queue
  at_once=$(($(getconf _NPROCESSORS_ONLN) + 2))
  [ "$at_once" -le 5 ] || at_once=5
  mkdir "$queue"
  find_test_runner
  run_logged "$queue/list.log" env TEST_QUEUE="$queue" cargo --config "$REPLY" test --workspace --tests ||
    fail "cargo could not list the test programs; see the messages above"
  ls "$queue"/*.sh >/dev/null 2>&1 || fail "cargo listed no test program; is a runner set in the environment or in a file of cargo?"
  # The examples of the documents, which cargo compiles and runs.
  printf 'cd %q\nexec cargo test --workspace --doc --no-fail-fast\n' "$root" >"$queue/doc.sh"
  programs=("$queue/doc.sh")
  for name in $long_programs ""; do
    for file in "$queue/${name:+$name-}"*.sh; do
      case " ${programs[*]:-} " in
        *" $file "*) ;;
        *) [ ! -f "$file" ] || programs+=("$file") ;;
      esac
    done
  done
  log_step "testing: ${#programs[@]} programs, $at_once at once"
  # Each program that ends writes a line here: its name and exit code. The ticker writes one every two seconds: a read that times out
  # may lose half a line.
  mkfifo "$queue/ended" || fail "$queue cannot have a named pipe; use a clone on a local disk"
  exec 3<>"$queue/ended"
  # shellcheck disable=SC2016 # expanded by the inner shell
  start_process ticker bash -c 'while sleep 2 && kill -0 "$1" 2>/dev/null; do echo tick >&3; done' ticker "$$"
  ticker_pid=$started_pid
  i=0
  while [ "$i" -lt "${#programs[@]}" ] || [ "${#running[@]}" -gt 0 ]; do
    while [ "$i" -lt "${#programs[@]}" ] && [ "${#running[@]}" -lt "$at_once" ]; do
      name=$(basename "${programs[i]}" .sh)
      # shellcheck disable=SC2016 # expanded by the inner shell
      start_process "$name" bash -c 'code=0; bash "$1" 3>&- || code=$?; echo "$2 $code" >&3' run "${programs[i]}" "$name"
      echo "$started_pid" >"$queue/$name.pid"
      running+=("$name")
      i=$((i + 1))
    done
    read -r -u 3 name ended || fail "the pipe $queue/ended cannot be read"
    if [ "$name" = tick ]; then collect_killed; else collect "$name" "$ended"; fi
    if [ $((SECONDS - reported_s)) -ge 60 ]; then
      reported_s=$SECONDS
      log_note "$SECONDS s, running: ${running[*]:-}"
    fi
  done
  { kill "$ticker_pid" && wait "$ticker_pid"; } 2>/dev/null || true
  rm -f "$run_dir"/*-ticker.process
  exec 3>&-
  return "$code"
}

# Removes a program that has ended from `running`, and prints its output. Leaves its exit code in `code` if it failed.
collect() {
  local left=() name
  [ "$2" = 0 ] || code=$2
  for name in "${running[@]}"; do
    [ "$name" = "$1" ] || left+=("$name")
  done
  running=(${left[@]+"${left[@]}"})
  rm -f "$run_dir"/*"-$1.process"
  log_step "${1%-*} (exit code $2)"
  tee -a "$output" <"$log_dir/$1.log"
}

# Collects the programs that were killed: gone, and still without a line in the pipe when it has been read once more.
collect_killed() {
  local name pid
  for name in ${running[@]+"${running[@]}"}; do
    read -r pid <"$queue/$name.pid"
    if kill -0 "$pid" 2>/dev/null; then continue; fi
    if [ -f "$queue/$name.gone" ]; then collect "$name" 137; else : >"$queue/$name.gone"; fi
  done
}

# Starts a database and a Temporal server for this run, and exports the settings of the tests.
start_test_servers() {
  local histories
  start_test_database
  make_temporary_folder temporal "$(memory_folder)"
  histories=$REPLY/$histories_file
  pick_port
  log_step "starting a Temporal server on port $REPLY"
  start_temporal "$REPLY" "$histories" ""
  configure_tests "$REPLY"
}

# Prints a folder in memory for the tests' databases, some GB of files that nothing reads after its test; nothing where memory is scarce.
memory_folder() {
  local memory_kb folder_kb
  memory_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null || true)
  folder_kb=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }' || true)
  [ "${memory_kb:-0}" -lt 16000000 ] || [ "${folder_kb:-0}" -lt 12000000 ] || printf /dev/shm
}

# start_test_database [durable]: starts a cluster for this run; leaves its port in test_pg_port.
start_test_database() {
  local kind=${1:-temporary} parent=
  [ "$kind" != temporary ] || parent=$(memory_folder)
  make_temporary_folder database "$parent"
  pick_port
  test_pg_port=$REPLY
  REPLY=$(sed -n 1p "$run_dir"/*-database.folder)
  log_step "starting a temporary database on port $test_pg_port ($kind)"
  start_cluster "$kind" "$REPLY" "$test_pg_port"
}

# Starts a cluster whose new databases have the ledger's migrations: hundreds of tests begin with them, and a copy costs a fifth.
start_migrated_database() {
  local port
  make_temporary_folder migrated "$(memory_folder)"
  pick_port
  port=$REPLY
  REPLY=$(sed -n 1p "$run_dir"/*-migrated.folder)
  log_step "starting a temporary database with the migrations on port $port"
  start_cluster temporary "$REPLY" "$port"
  find_programs
  "$REPLY/payctl" migrate --database-url "$(database_url "$port" template1)" >"$log_dir/migrate.log" 2>&1 ||
    fail_with_log migrate "the migrations failed"
  TEST_MIGRATED_DATABASE_URL=$(database_url "$port" postgres)
  export TEST_MIGRATED_DATABASE_URL
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
