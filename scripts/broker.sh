# shellcheck shell=bash
# The message broker of `./dev up`: a private nats-server with JetStream, loopback only, that confirms what is on the disk. The tests start brokers of their own.

# start_broker PORT FOLDER; what it keeps in the folder outlives a restart.
start_broker() {
  local port=$1 dir=$2 deadline=$((SECONDS + ready_bound_s))
  mkdir -p -m 0700 "$dir"
  start broker "$nats_server" --config "$root/deploy/nats/local.conf" --addr 127.0.0.1 --port "$port" --store_dir "$dir"
  until port_is_used "$port"; do
    require_alive broker "$started_pid"
    if [ "$SECONDS" -ge "$deadline" ]; then
      show_log "$log_dir/broker.log"
      fail "the message broker did not listen within $ready_bound_s s; its log is $log_dir/broker.log"
    fi
    sleep 0.1
  done
}
