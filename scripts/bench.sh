# shellcheck shell=bash
# `./dev bench`: what a part costs, against what one would do without it, side by side in one run.

bench() {
  local beside=()
  case ${1:-} in
    idempotency | ledger | reconcile) ;;
    *) fail "./dev bench what? There is: idempotency, ledger, reconcile" ;;
  esac
  begin_session bench
  install_tools
  if [ "$1" = idempotency ]; then
    have redis-server || install_packages redis
    have redis-server || fail "redis-server is missing"
  fi
  step "building the bench (cargo build --release -p benches)"
  attend_quietly "$log_dir/build.log" cargo build --release -p benches || {
    show_log "$log_dir/build.log"
    fail "the bench does not build"
  }
  start_test_database durable
  pg psql -h 127.0.0.1 -p "$test_pg_port" -U payments -d postgres -qc 'CREATE DATABASE bench' || fail "no database for the bench"
  if [ "$1" = idempotency ]; then
    temporary_folder redis
    pick_port
    step "starting Redis on port $REPLY"
    start_redis "$REPLY" "$(sed -n 1p "$run_dir"/*-redis.folder)"
    beside=(--redis-url "$redis_url")
  fi
  if [ "$1" = reconcile ]; then
    pick_port
    step "starting a Temporal server on port $REPLY"
    start_temporal "$REPLY" "" ""
    beside=(--temporal-address "http://127.0.0.1:$REPLY")
  fi
  programs_folder
  # One way after the other, all against the same database: what counts is how they compare.
  attend "${REPLY%/*}/release/bench" "$@" --database-url "$(database_url "$test_pg_port" bench)" "${beside[@]+"${beside[@]}"}"
}

redis_url=

# Redis as a cache is run: it may forget, so it writes nothing to disk.
start_redis() {
  local port=$1 dir=$2 tries=0
  start redis redis-server --port "$port" --bind 127.0.0.1 --save "" --appendonly no --dir "$dir" --daemonize no
  until redis-cli -p "$port" ping >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -le 100 ] || fail "Redis did not start; its log is $log_dir/redis.log"
    sleep 0.1
  done
  redis_url=redis://127.0.0.1:$port
}
