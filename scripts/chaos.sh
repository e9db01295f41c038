# shellcheck shell=bash
# `./dev chaos`: payments of every sandbox behaviour while each process, server and link fails by a seeded schedule; then all books
# are compared. The run starts its own PostgreSQL, Temporal server and broker, and ends them.

chaos() {
  local minutes=10 seed=1 output code=0
  while [ $# -gt 0 ]; do
    case $1 in
      --minutes) minutes=${2:-} ;;
      --seed) seed=${2:-} ;;
      *) fail "chaos takes --minutes M and --seed S, not '$1'" ;;
    esac
    shift 2 || fail "a value is missing"
  done
  case $minutes in [1-9] | [1-9][0-9] | [1-9][0-9][0-9]) ;; *) fail "--minutes takes a whole number from 1 to 999, not '$minutes'" ;; esac
  case $seed in '' | *[!0-9]* | ??????????????????*) fail "--seed takes a whole number of at most 17 digits, not '$seed'" ;; esac
  start_run chaos
  remove_kept_databases
  install_tools
  build_temporal
  start_test_database # the switch's books are in it
  export TEST_DATABASE_URL TEST_TEMPORAL_ADDRESS=http://127.0.0.1:9
  TEST_DATABASE_URL=$(database_url "$test_pg_port" postgres)
  export TEMPORAL_CLI=$temporal TEST_PG_BIN=$pg_bin TEST_NATS_SERVER=$nats_server
  build tests
  output=$log_dir/chaos.txt
  log_step "chaos for $minutes min with seed $seed; the report is kept in $output"
  # shellcheck disable=SC2016 # expanded by the inner shell
  CHAOS_SECONDS=$((minutes * 60)) CHAOS_SEED=$seed run_in_foreground bash -c 'set -o pipefail; output=$1; shift; "$@" | tee "$output"' tee "$output" \
    cargo test --quiet --workspace --test chaos -- --nocapture --exact r11_r12_r13_r15_chaos_loses_doubles_and_strands_no_payment || code=$?
  [ "$code" = 0 ] || keep_databases
  grep '^payments [0-9]' "$output" || fail "the run ended without a result; its output is in $output"
  return "$code"
}
