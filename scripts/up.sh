# shellcheck shell=bash
# `./dev up`: the whole system on this machine, one payment through it, then its addresses; ends with Ctrl-C.

up() {
  local kind=up cluster temporal_file broker_folder
  case ${1:-} in
    '') ;;
    --once) kind=once ;;
    *) fail "up takes only --once" ;;
  esac
  begin_session "$kind"
  require_free_ports
  install_tools
  build
  programs_folder
  programs=$REPLY

  announce=yes
  if [ "$kind" = once ]; then
    temporary_folder temporal
    temporal_file=$REPLY/temporal.db
    temporary_folder broker
    broker_folder=$REPLY
    temporary_folder database
    cluster=$REPLY
    step "starting a throw-away database on port $pg_port"
    start_cluster temporary "$cluster" "$pg_port"
  else
    temporal_file=$dev_dir/temporal.db
    broker_folder=$dev_dir/broker
    kept_cluster_folder
    cluster=$REPLY
    step "starting the database on port $pg_port (its data: $cluster)"
    start_cluster kept "$cluster" "$pg_port"
  fi
  step "starting the Temporal server on port $temporal_port"
  start_temporal "$temporal_port" "$temporal_file" "$temporal_ui_port"
  step "starting the message broker on port $nats_port"
  start_broker "$nats_port" "$broker_folder"
  start_services
  pay_once
  [ "$kind" = up ] || return 0
  print_addresses
  watch_processes
}

# The configuration of every process: the demo file, with the addresses of this run on top.
configure_services() {
  local payments_url switch_url
  owner_url=$(database_url "$pg_port" payments)
  payments_url=$(database_url "$pg_port" payments "$service_login")
  switch_url=$(database_url "$pg_port" mock_switch)
  api=http://127.0.0.1:$api_port
  mock_switch=http://127.0.0.1:$switch_port
  worker_metrics=http://127.0.0.1:$worker_metrics_port
  background_worker_metrics=http://127.0.0.1:$background_worker_metrics_port
  notifier_metrics=http://127.0.0.1:$notifier_metrics_port
  export PAYMENTS_CONFIG=${PAYMENTS_CONFIG:-$root/deploy/demo.toml}
  export PAYMENTS_DATABASE__URL=$payments_url
  export PAYMENTS_TEMPORAL__ADDRESS=http://127.0.0.1:$temporal_port
  export PAYMENTS_API__LISTEN=127.0.0.1:$api_port
  export PAYMENTS_WORKER__METRICS_LISTEN=127.0.0.1:$worker_metrics_port
  export PAYMENTS_BACKGROUND_WORKER__METRICS_LISTEN=127.0.0.1:$background_worker_metrics_port
  export PAYMENTS_NOTIFIER__METRICS_LISTEN=127.0.0.1:$notifier_metrics_port
  outbound_webhooks.master_key
  export PAYMENTS_OUTBOUND_WEBHOOKS__MASTER_KEY=$REPLY
  export PAYMENTS_BROKER__URL=nats://127.0.0.1:$nats_port
  export PAYMENTS_SWITCHES__MOCK__BASE_URL=$mock_switch
  export MOCK_SWITCH_LISTEN=127.0.0.1:$switch_port
  export MOCK_SWITCH_DATABASE_URL=$switch_url
  export MOCK_SWITCH_CALLBACK_URL=$api/callbacks/mock
}

# What the secrets of webhook endpoints are made from, in REPLY: kept as long as the database that has the endpoints, so a
# throw-away one gets a throw-away key.
outbound_webhooks.master_key() {
  local file=$dev_dir/webhooks.key
  if [ "$kind" = once ] || [ ! -s "$file" ]; then
    REPLY=$(head -c 32 /dev/urandom | base64)
    [ "$kind" = once ] || (umask 077 && printf '%s\n' "$REPLY" >"$file")
  else
    REPLY=$(sed -n 1p "$file")
  fi
}

# Starts our processes, each after what it needs; none is started before the one before it is ready.
start_services() {
  local demo=$log_dir/demo.json
  configure_services
  step "starting the mock switch on port $switch_port"
  start mock-switch "$programs/mock-switch"
  wait_ready mock-switch "$mock_switch/ready"
  step "applying the migrations, opening the demo accounts"
  attend "$programs/payctl" migrate --database-url "$owner_url" >"$log_dir/migrate.log" 2>&1 || fail_with_log migrate "the migrations failed"
  make_service_login "$pg_port"
  attend "$programs/payctl" demo --json --database-url "$owner_url" >"$demo" 2>"$log_dir/demo.log" || fail_with_log demo "the demo accounts could not be opened"
  api_key=$(json_text api_key "$demo")
  source_account=$(json_text source_account "$demo")
  destination_account=$(json_text destination_account "$demo")
  [ -n "$api_key" ] && [ -n "$source_account" ] && [ -n "$destination_account" ] ||
    fail "'payctl demo --json' did not name api_key, source_account and destination_account; see $demo"
  step "starting the payment worker"
  start payment-worker "$programs/payment-worker"
  wait_ready payment-worker "$worker_metrics/ready"
  step "starting the webhook on port $api_port"
  start webhook "$programs/webhook"
  wait_ready webhook "$api/ready"
  step "starting the relay"
  start relay "$programs/relay"
  wait_ready relay "$background_worker_metrics/ready"
  step "starting the notifier"
  start notifier "$programs/notifier"
  wait_ready notifier "$notifier_metrics/ready"
}

fail_with_log() {
  show_log "$log_dir/$1.log"
  fail "$2"
}

# One text field of a flat JSON file; there may be no jq.
json_text() { sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p" "$2" | head -n 1; }

# Makes one payment as a customer would, over HTTP, and shows its steps until it has settled.
pay_once() {
  local log=$log_dir/payment.log
  step "paying 12.50 EUR from $source_account to $destination_account"
  # shellcheck disable=SC2016 # expanded by the inner shell
  attend bash -c 'set -o pipefail; log=$1; shift; "$@" 2>&1 | tee "$log"' tee "$log" \
    "$programs/payctl" pay --url "$api" --key "$api_key" --from "$source_account" --to "$destination_account" \
    --amount 12.50 --currency EUR --watch ||
    fail "the payment did not settle; the logs of all processes are in $log_dir"
  step "the payment settled"
  payment_id=$(grep -oE 'pay_[0-9a-f]{32}' "$log" | head -n 1 || true)
}

print_addresses() {
  local ui=http://127.0.0.1:$temporal_ui_port/namespaces/default/workflows
  cat <<TEXT

  This payment in the Temporal UI   $ui/$payment_id
  API page                          $api/docs
  The switch's own book             $mock_switch/admin/book
  Metrics                           $worker_metrics/metrics
                                    $api/metrics
                                    $background_worker_metrics/metrics
                                    $notifier_metrics/metrics
  Database, as its owner            $owner_url
  Logs                              ${log_dir#"$root"/}

  To be told over HTTP on this machine  README.md, "Your own systems are told"

  The next payment:

    curl -sS $api/api/v1/payments \\
      -H 'Authorization: Bearer $api_key' -H "Idempotency-Key: demo-\$RANDOM\$RANDOM" -H 'Content-Type: application/json' \\
      -d '{"amount":"12.50","currency":"EUR","source_account":"$source_account","destination_account":"$destination_account"}'

TEXT
}

# Stays in front. The system is only as good as its weakest process: when one ends by itself, all are stopped.
# Its stderr is closed meanwhile, or bash would report a killed process in its own words too.
watch_processes() {
  local dead=
  step "up; Ctrl-C stops everything"
  while [ -z "$dead" ]; do
    sleep 1
    find_dead
  done 2>/dev/null
  if [ "$dead" = database ]; then
    show_log "$cluster_log"
    fail "the database ended by itself; its log is $cluster_log"
  fi
  dead=${dead##*/??-}
  require_alive "${dead%.process}" "$(sed -n 1p "$run_dir"/*-"$dead")"
}

# Leaves the record of a process that is gone in `dead`, if there is one.
find_dead() {
  local record
  kill -0 "$cluster_pid" || dead=database
  for record in "$run_dir"/*.process; do
    kill -0 "$(sed -n 1p "$record")" || dead=$record
  done
}
