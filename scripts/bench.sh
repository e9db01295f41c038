# shellcheck shell=bash
# `./dev bench`: benchmarks a component against its alternatives in one run.

bench() {
  local comparison_args=()
  case ${1:-} in
    idempotency | ledger | reads | reconcile) ;;
    *) fail "name a benchmark: idempotency, ledger, reads or reconcile" ;;
  esac
  start_run bench
  install_tools
  if [ "$1" = idempotency ]; then
    has_command redis-server || install_packages redis
    has_command redis-server || fail "redis-server is missing"
  fi
  log_step "building the benchmarks (cargo build --release -p benches)"
  run_logged "$log_dir/build.log" cargo build --release -p benches || {
    print_log_tail "$log_dir/build.log"
    fail "the benchmarks do not build; see the log above"
  }
  start_test_database durable
  run_pg psql -h 127.0.0.1 -p "$test_pg_port" -U payments -d postgres -qc 'CREATE DATABASE bench' || fail "the database of the benchmark could not be created"
  if [ "$1" = idempotency ]; then
    make_temporary_folder redis
    pick_port
    log_step "starting Redis on port $REPLY"
    start_redis "$REPLY" "$(sed -n 1p "$run_dir"/*-redis.folder)"
    comparison_args=(--redis-url "$redis_url")
  fi
  if [ "$1" = reconcile ]; then
    pick_port
    log_step "starting a Temporal server on port $REPLY"
    start_temporal "$REPLY" "" ""
    comparison_args=(--temporal-address "http://127.0.0.1:$REPLY")
  fi
  find_programs
  # The alternatives run one after the other against the same database; only the ratio of their figures matters.
  run_in_foreground "${REPLY%/*}/release/bench" "$@" --database-url "$(database_url "$test_pg_port" bench)" "${comparison_args[@]+"${comparison_args[@]}"}"
}

redis_url=

# start_redis PORT FOLDER: a cache, so nothing is written to disk. Leaves the URL in redis_url.
start_redis() {
  local port=$1 dir=$2 tries=0
  start_process redis redis-server --port "$port" --bind 127.0.0.1 --save "" --appendonly no --dir "$dir" --daemonize no
  until redis-cli -p "$port" ping >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -le 100 ] || fail "Redis did not start; its log is $log_dir/redis.log"
    sleep 0.1
  done
  redis_url=redis://127.0.0.1:$port
}
