# shellcheck shell=bash
# `./dev bench`: benchmarks a component against its alternatives in one run.

bench() {
  local comparison_args=() programs
  case ${1:-} in
    idempotency | ledger | reads | reconcile) ;;
    payments)
      shift
      bench_payments "$@"
      return
      ;;
    *) fail "name a benchmark: idempotency, ledger, payments, reads or reconcile" ;;
  esac
  start_run bench
  install_tools
  if [ "$1" = idempotency ]; then
    has_command redis-server || install_packages redis
    has_command redis-server || fail "redis-server is missing"
  fi
  build_release benches
  programs=$REPLY
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
  # The alternatives run one after the other against the same database; only the ratio of their figures matters.
  run_in_foreground "$programs/bench" "$@" --database-url "$(database_url "$test_pg_port" bench)" "${comparison_args[@]+"${comparison_args[@]}"}"
}

# build_release PACKAGE..: builds the programs of packages; leaves their folder in REPLY.
build_release() {
  log_step "building (cargo build --release, packages: $*); the first build takes some ten minutes"
  run_logged "$log_dir/build.log" cargo build --release "${@/#/-p}" || fail "the programs do not build; see the log above"
  find_programs
  REPLY=${REPLY%/*}/release
}

# `./dev bench payments`: what a payment costs, by process: the whole system as release programs, with a durable database of the
# bank's own, and one of the switch that is measured and not counted. With BENCH_PROGRAMS, a folder with the programs of another
# version, that version is measured, so that two versions compare in one sitting; a `bench` in it measures, and nothing is built.
bench_payments() {
  local kind=once strategy=query workers=1 observes='' oidc='' switch_pg_port='' processes=() name port pid bench
  [ -d /proc/self ] || fail "bench payments reads the processes from /proc, which this system does not have"
  start_run bench
  install_tools
  if [ -x "${BENCH_PROGRAMS:-}/bench" ]; then
    programs=$BENCH_PROGRAMS
    bench=$programs/bench
  else
    build_release benches payctl mock-switch payments-api payment-worker background-worker notifier operator-api
    bench=$REPLY/bench
    programs=${BENCH_PROGRAMS:-$REPLY}
  fi
  for port in pg_port temporal_port temporal_ui_port codec_port switch_port sepa_switch_port api_port api_metrics_port worker_metrics_port background_worker_metrics_port notifier_metrics_port operator_api_port operator_api_metrics_port nats_port switch_pg_port; do
    pick_port
    printf -v "$port" %s "$REPLY"
  done
  configure_strategy query
  log_step "starting the databases of the bank and of the switch"
  make_temporary_folder switch-database
  start_cluster durable "$REPLY" "$switch_pg_port"
  processes+=(--process "switch_postgres=$cluster_pid")
  make_temporary_folder database
  start_cluster counting "$REPLY" "$pg_port"
  processes+=(--process "postgres=$cluster_pid")
  log_step "starting the Temporal server on port $temporal_port"
  start_temporal "$temporal_port" "" "$temporal_ui_port"
  make_temporary_folder broker
  log_step "starting the message broker on port $nats_port"
  start_broker "$nats_port" "$REPLY"
  export MOCK_SWITCH_SETTLE_AFTER_MS=${MOCK_SWITCH_SETTLE_AFTER_MS:-3}
  case " $* " in
    # What a lost workflow costs, and not how long it stays unnoticed.
    *" --lost"[\ =][1-9]*) export PAYMENTS_WORKER__LIVENESS_CHECK_AFTER_MS=5000 PAYMENTS_WORKER__LIVENESS_CHECK_INTERVAL_MS=1000 ;;
  esac
  start_services
  run_pg psql -X -q -h 127.0.0.1 -p "$pg_port" -U payments -d payments -c 'CREATE EXTENSION pg_stat_statements' ||
    fail "the statements cannot be counted: the extension pg_stat_statements is missing (package postgresql-contrib)"
  for name in temporal=temporal worker=payment-worker-1 webhook=payments-api relay=background-worker notifier=notifier broker=broker switch=mock-switch sepa_switch=mock-switch-sepa; do
    pid=$(sed -n 1p "$run_dir"/*-"${name#*=}".process)
    processes+=(--process "${name%%=*}=$pid")
  done
  run_in_foreground "$bench" payments "$@" --database-url "$(database_url "$pg_port" payments)" --api "$api" --api-key "$api_key" \
    --temporal-address "http://127.0.0.1:$temporal_port" "${processes[@]}"
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
