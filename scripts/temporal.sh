# shellcheck shell=bash
# The Temporal development server. A database file keeps its state across restarts, and the two pragmas make the file as
# fast as memory. Polling at 200/s instead of 20/s saves 50 ms per task of a payment; eager activities and a single
# partition shorten a single payment. The search attributes are those of the payment workflow.

# start_temporal PORT DATABASE_FILE UI_PORT: an empty file means in memory, an empty UI port means without UI.
start_temporal() {
  local port=$1 file=$2 ui_port=$3
  set -- --ip 127.0.0.1 --port "$port" --log-level warn \
    --dynamic-config-value history.transferProcessorMaxPollRPS=200 \
    --dynamic-config-value system.enableActivityEagerExecution=true \
    --dynamic-config-value matching.numTaskqueueReadPartitions=1 \
    --dynamic-config-value matching.numTaskqueueWritePartitions=1 \
    --search-attribute PaymentSwitch=Keyword
  if [ -n "$file" ]; then
    set -- "$@" --db-filename "$file" --sqlite-pragma journal_mode=WAL --sqlite-pragma synchronous=NORMAL
  fi
  if [ -n "$ui_port" ]; then
    set -- "$@" --ui-port "$ui_port" --ui-codec-endpoint "http://127.0.0.1:$codec_port"
  else
    set -- "$@" --headless
  fi
  start_process temporal "$temporal" server start-dev "$@"
  wait_temporal "127.0.0.1:$port"
}

# The port opens before the server is ready, so the health of the cluster is checked.
wait_temporal() {
  local address=$1 deadline=$((SECONDS + ready_bound_s))
  until "$temporal" operator cluster health --address "$address" >/dev/null 2>&1; do
    require_alive temporal "$started_pid"
    if [ "$SECONDS" -ge "$deadline" ]; then
      print_log_tail "$log_dir/temporal.log"
      fail "the Temporal server was not healthy within $ready_bound_s s; its log is $log_dir/temporal.log"
    fi
    sleep 0.2
  done
}
