# shellcheck shell=bash
# The message broker of `./dev up`: a nats-server with JetStream that listens on loopback only and syncs every event. Tests start their own brokers.

# start_broker PORT FOLDER: the folder keeps the streams across restarts.
start_broker() {
  local port=$1 dir=$2 deadline=$((SECONDS + ready_bound_s))
  mkdir -p -m 0700 "$dir"
  start_process broker "$nats_server" --config "$root/deploy/nats/local.conf" --addr 127.0.0.1 --port "$port" --store_dir "$dir"
  until port_is_used "$port"; do
    require_alive broker "$started_pid"
    if [ "$SECONDS" -ge "$deadline" ]; then
      print_log_tail "$log_dir/broker.log"
      fail "the message broker did not listen within $ready_bound_s s; its log is $log_dir/broker.log"
    fi
    sleep 0.1
  done
}
