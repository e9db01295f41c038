# shellcheck shell=bash
# `./dev up`: starts the whole system on this machine, makes one payment, prints the addresses, and runs until Ctrl-C.
# There are two switches: `mock`, which --strategy and --rail change, and `sepa`, which is always of the rail sct_inst.

up() {
  local kind=up strategy='' rail='' workers=2 observes= oidc= cluster temporal_file broker_folder
  while [ $# -gt 0 ]; do
    case $1 in
      --once) kind=once ;;
      --observe) observes=yes ;;
      --oidc) oidc=yes ;;
      --strategy)
        name_after "$@"
        strategy=$REPLY
        shift
        ;;
      --strategy=*)
        name_after --strategy "${1#*=}"
        strategy=$REPLY
        ;;
      --rail)
        name_after "$@"
        rail=$REPLY
        shift
        ;;
      --rail=*)
        name_after --rail "${1#*=}"
        rail=$REPLY
        ;;
      --workers)
        workers=${2:-}
        [ $# = 1 ] || shift
        ;;
      --workers=*) workers=${1#*=} ;;
      *) fail "up does not accept '$1'; it accepts --once, --observe, --oidc, --strategy NAME, --rail NAME and --workers N" ;;
    esac
    shift
  done
  case $workers in
    [1-9]) ;;
    *) fail "--workers takes a number of payment-workers from 1 to 9" ;;
  esac
  [ -z "$observes" ] || [ "$kind" = up ] || fail "--observe shows the traces until Ctrl-C; leave out --once"
  [ -z "$strategy" ] || [ -z "$rail" ] || fail "--strategy and --rail exclude each other: a rail has its strategy"
  if [ -n "$rail" ]; then configure_rail "$rail"; else configure_strategy "${strategy:=query}"; fi
  start_run "$kind"
  [ -z "$rail" ] || write_rail_configuration "$rail"
  if [ "$kind" = up ]; then
    require_own_cluster
    require_same_switch "${rail:+rail }${rail:-$strategy}"
  fi
  require_free_ports "$observes" "$oidc"
  install_tools
  [ -z "$oidc" ] || build_oidc_provider
  build
  find_programs
  programs=$REPLY

  report_stops=yes
  if [ "$kind" = once ]; then
    make_temporary_folder temporal
    temporal_file=$REPLY/temporal.db
    make_temporary_folder broker
    broker_folder=$REPLY
    make_temporary_folder database
    cluster=$REPLY
    log_step "starting a temporary database on port $pg_port"
    start_cluster temporary "$cluster" "$pg_port"
  else
    temporal_file=$dev_dir/temporal.db
    broker_folder=$dev_dir/broker
    persistent_cluster_folder
    cluster=$REPLY
    log_step "starting the database on port $pg_port (data: $cluster)"
    start_cluster persistent "$cluster" "$pg_port"
  fi
  log_step "starting the Temporal server on port $temporal_port"
  start_temporal "$temporal_port" "$temporal_file" "$temporal_ui_port"
  log_step "starting the message broker on port $nats_port"
  start_broker "$nats_port" "$broker_folder"
  start_services
  make_demo_payment "$destination_account"
  make_demo_deposit
  if [ "$kind" = once ]; then
    make_demo_payment "$sepa_account"
    return 0
  fi
  print_addresses
  watch_processes
}

# name_after OPTION [NAME]..: leaves the name of a submit strategy or a rail in REPLY; another option is no name.
name_after() {
  REPLY=${2:-}
  case $1,$REPLY in
    --strategy, | --strategy,-*) fail "--strategy takes a name; choose one of: $strategy_names" ;;
    --rail, | --rail,-*) fail "--rail takes a name; choose one of: $rail_names" ;;
  esac
}

# The kept book of the first switch has transfers as one kind of switch records them: another kind could not read them.
require_same_switch() {
  local kept option file=$dev_dir/strategy
  persistent_cluster_folder
  if [ -d "$REPLY/data" ] && [ -s "$file" ]; then
    kept=$(sed -n 1p "$file")
    case $kept in
      "rail "*) option="--rail ${kept#rail }" ;;
      query) option= ;;
      *) option="--strategy $kept" ;;
    esac
    [ "$kept" = "$1" ] ||
      fail "the kept payments were made with './dev up${option:+ $option}'; start it so, or delete them first with './dev reset'"
  fi
  printf '%s\n' "$1" >"$file"
}

# `./dev reset`: deletes what `./dev up` keeps between runs.
reset_data() {
  [ $# = 0 ] || fail "reset takes no arguments"
  start_run up # the run that `up` has: the two exclude each other
  persistent_cluster_folder
  stop_cluster "$REPLY" # left by a killed run
  rm -rf "$REPLY" "$dev_dir/broker" "$dev_dir/webhooks.key" "$dev_dir/strategy" "$dev_dir/$cluster_id_file" "$dev_dir"/temporal.db*
  log_step "deleted the database, the workflows and the events of ./dev up"
}

# Configures every process: the demo file, overridden by the addresses of this run.
configure_services() {
  local switch_url
  owner_url=$(database_url "$pg_port" payments)
  switch_url=$(database_url "${switch_pg_port:-$pg_port}" mock_switch)
  api=http://127.0.0.1:$api_port
  operator_api=http://127.0.0.1:$operator_api_port
  mock_switch=http://127.0.0.1:$switch_port
  sepa_switch=http://127.0.0.1:$sepa_switch_port
  background_worker_metrics=http://127.0.0.1:$background_worker_metrics_port
  notifier_metrics=http://127.0.0.1:$notifier_metrics_port
  export PAYMENTS_CONFIG=${PAYMENTS_CONFIG:-$root/deploy/demo.toml}
  require_switches
  export PAYMENTS_TEMPORAL__ADDRESS=http://127.0.0.1:$temporal_port
  export PAYMENTS_API__LISTEN=127.0.0.1:$api_port PAYMENTS_API__METRICS_LISTEN=127.0.0.1:$api_metrics_port
  export PAYMENTS_BACKGROUND_WORKER__METRICS_LISTEN=127.0.0.1:$background_worker_metrics_port
  export PAYMENTS_NOTIFIER__METRICS_LISTEN=127.0.0.1:$notifier_metrics_port
  export PAYMENTS_OPERATOR_API__LISTEN=127.0.0.1:$operator_api_port PAYMENTS_OPERATOR_API__METRICS_LISTEN=127.0.0.1:$operator_api_metrics_port
  if [ -n "$oidc" ]; then
    oidc_issuer=http://127.0.0.1:$oidc_port
    export PAYMENTS_OPERATOR_API__OIDC__ISSUER=$oidc_issuer PAYMENTS_OPERATOR_API__OIDC__CLIENT_ID=payctl
  fi
  load_webhooks_master_key
  export PAYMENTS_OUTBOUND_WEBHOOKS__MASTER_KEY=$REPLY
  export PAYMENTS_BROKER__URL=nats://127.0.0.1:$nats_port
  export PAYMENTS_SWITCHES__MOCK__BASE_URL=$mock_switch
  export PAYMENTS_SWITCHES__SEPA__BASE_URL=$sepa_switch
  export MOCK_SWITCH_LISTEN=127.0.0.1:$switch_port
  export MOCK_SWITCH_DATABASE_URL=$switch_url
  export MOCK_SWITCH_CALLBACK_URL=$api/callbacks/mock
  export PLAYGROUND_LISTEN=127.0.0.1:$playground_port
  export PLAYGROUND_REAL__DATABASE_URL=$owner_url
  export PLAYGROUND_REAL__TEMPORAL_ADDRESS=$PAYMENTS_TEMPORAL__ADDRESS
  export PLAYGROUND_REAL__TEMPORAL_UI=http://127.0.0.1:$temporal_ui_port/namespaces/default/workflows
  export PLAYGROUND_REAL__LOGS=$log_dir/playground
  if [ -n "$observes" ]; then
    export PLAYGROUND_OTLP_LISTEN=127.0.0.1:$otlp_port
    export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:$otlp_port
    # Milliseconds after which the page shows a span; a killed process loses those that wait.
    export OTEL_BSP_SCHEDULE_DELAY=${OTEL_BSP_SCHEDULE_DELAY:-50}
  fi
}

# Both switches are in the configuration file: an address alone would be an incomplete section.
require_switches() {
  local name
  for name in mock sepa; do
    grep -q "^\[switches\.$name\]" "$PAYMENTS_CONFIG" ||
      fail "the configuration file $PAYMENTS_CONFIG has no section [switches.$name]; copy it from deploy/demo.toml"
  done
}

# Leaves the master key, from which the secrets of webhook endpoints are derived, in REPLY. It is kept as long as the
# database with the endpoints: a temporary database gets a temporary key.
load_webhooks_master_key() {
  local file=$dev_dir/webhooks.key
  if [ "$kind" = once ] || [ ! -s "$file" ]; then
    REPLY=$(head -c 32 /dev/urandom | base64)
    [ "$kind" = once ] || (umask 077 && printf '%s\n' "$REPLY" >"$file")
  else
    REPLY=$(sed -n 1p "$file")
  fi
}

# Starts the processes in the order of their dependencies; each must be ready before the next one starts.
start_services() {
  local demo=$log_dir/demo.json
  configure_services
  # It collects the traces of the others.
  [ -z "$observes" ] || start_playground
  log_step "starting the mock switch on port $switch_port"
  start_service mock-switch
  wait_ready mock-switch "$mock_switch/ready"
  log_step "starting the second mock switch, of the rail sct_inst, on port $sepa_switch_port"
  start_service mock-switch-sepa
  wait_ready mock-switch-sepa "$sepa_switch/ready"
  log_step "applying the migrations and opening the demo accounts"
  run_in_foreground "$programs/payctl" migrate --database-url "$owner_url" >"$log_dir/migrate.log" 2>&1 || fail_with_log migrate \
      "the migrations failed; if the database is of another version of this repository, delete it with: ./dev reset"
  create_service_logins "$pg_port"
  run_in_foreground "$programs/payctl" demo --json --database-url "$owner_url" >"$demo" 2>"$log_dir/demo.log" || fail_with_log demo "the demo accounts could not be opened"
  api_key=$(json_text api_key "$demo")
  source_account=$(json_text source_account "$demo")
  destination_account=$(json_text destination_account "$demo")
  [ -n "$api_key" ] && [ -n "$source_account" ] && [ -n "$destination_account" ] ||
    fail "the output of 'payctl demo --json' lacks api_key, source_account or destination_account; see $demo"
  start_workers
  log_step "starting the payments-api on port $api_port"
  start_service payments-api
  wait_ready payments-api "$api/ready"
  log_step "starting the background-worker"
  start_service background-worker
  wait_ready background-worker "$background_worker_metrics/ready"
  log_step "starting the notifier"
  start_service notifier
  wait_ready notifier "$notifier_metrics/ready"
  [ -z "$oidc" ] || start_oidc_provider
  log_step "starting the operator-api on port $operator_api_port"
  start_service operator-api
  wait_ready operator-api "$operator_api/ready"
  [ "$kind" = up ] || return 0
  log_step "starting the codec server of the Temporal UI on port $codec_port"
  start_service codec-server
  wait_ready codec-server "http://127.0.0.1:$codec_port/ready"
  [ -n "$observes" ] || start_playground
}

# The OpenID provider, and the operators who log in there: carol proposes, dave confirms.
start_oidc_provider() {
  local name
  log_step "starting the OpenID provider on port $oidc_port"
  start_service oidc-provider
  wait_ready oidc-provider "$oidc_issuer/ready"
  for name in carol dave; do
    # A kept database has them already, perhaps with another issuer. They are the administrators, too.
    "$programs/payctl" operators set-identity "$name" --as-owner --issuer "$oidc_issuer" --subject "$name" --database-url "$owner_url" >"$log_dir/oidc.log" 2>&1 ||
      run_in_foreground "$programs/payctl" operators create "$name" --as-owner --role operator --role approver --role administrator \
        --issuer "$oidc_issuer" --subject "$name" --database-url "$owner_url" >"$log_dir/oidc.log" 2>&1 ||
      fail_with_log oidc "the operators of the OpenID provider could not be created"
  done
}

start_playground() {
  log_step "starting the playground on port $playground_port${observes:+; it collects the traces of the other processes on port $otlp_port}"
  drop_playground_databases
  start_service playground
  wait_ready playground "http://127.0.0.1:$playground_port/ready"
}

# Starts the payment-workers: any of them carries any payment. The metrics of the first one have the configured port.
start_workers() {
  local number
  worker_addresses=()
  for ((number = 1; number <= workers; number++)); do
    if [ "$number" = 1 ]; then
      REPLY=$worker_metrics_port
    else
      pick_port
    fi
    worker_addresses+=("127.0.0.1:$REPLY")
    log_step "starting payment-worker-$number"
    start_service "payment-worker-$number"
    wait_ready "payment-worker-$number" "http://127.0.0.1:$REPLY/ready"
  done
}

# start_service NAME: starts the program of a service; a payment-worker has its number behind the name.
start_service() {
  case $1 in
    mock-switch-sepa)
      start_sepa_switch
      return
      ;;
    codec-server)
      start_process codec-server "$programs/payctl" codec-server --listen "127.0.0.1:$codec_port" --ui "http://127.0.0.1:$temporal_ui_port"
      return
      ;;
    oidc-provider)
      start_process oidc-provider "$oidc_provider" "$oidc_port"
      return
      ;;
    payment-worker-*) export PAYMENTS_WORKER__METRICS_LISTEN=${worker_addresses[${1##*-} - 1]} ;;
  esac
  PAYMENTS_DATABASE__URL=$(database_url "$pg_port" payments "$(login_of "$1")")
  export PAYMENTS_DATABASE__URL
  start_process "$1" "$programs/${1%-[1-9]}"
}

# The account that the demo pays through the second switch.
sepa_account=AT-ERIN-EUR

# Starts the second switch, which has a book, a token and a secret of its own. The settings hold for this process only, and take
# precedence over those of the first switch; a rail's shape replaces any other.
start_sepa_switch() {
  MOCK_SWITCH_NAME=sepa MOCK_SWITCH_RAIL=sct_inst MOCK_SWITCH_LISTEN=127.0.0.1:$sepa_switch_port \
    MOCK_SWITCH_DATABASE_URL=$(database_url "${switch_pg_port:-$pg_port}" mock_switch_sepa) \
    MOCK_SWITCH_API_TOKEN=$(sepa_setting api_token) MOCK_SWITCH_CALLBACK_URL=$api/callbacks/sepa \
    MOCK_SWITCH_CALLBACK_SECRET=$(sepa_setting callback_secrets) \
    start_process mock-switch-sepa "$programs/mock-switch"
}

# sepa_setting KEY: prints the first text of a key in the section of the second switch.
sepa_setting() {
  sed -n "/^\[switches\.sepa\]/,/^\[/s/^$1 *= *\[*\"\([^\"]*\)\".*/\1/p" "$PAYMENTS_CONFIG"
}

fail_with_log() {
  print_log_tail "$log_dir/$1.log"
  fail "$2"
}

# json_text FIELD FILE: prints a text field of a flat JSON file without jq.
json_text() { sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p" "$2" | head -n 1; }

# make_demo_payment ACCOUNT: makes one payment over the API, as a customer does, and prints its steps until it has settled, and
# the switch that carried it.
make_demo_payment() {
  local log=$log_dir/payment.log
  log_step "paying 12.50 EUR from $source_account to $1"
  # shellcheck disable=SC2016 # expanded by the inner shell
  run_in_foreground bash -c 'set -o pipefail; log=$1; shift; "$@" 2>&1 | tee "$log"' tee "$log" \
    "$programs/payctl" pay --url "$api" --key "$api_key" --from "$source_account" --to "$1" \
    --amount 12.50 --currency EUR --watch ||
    fail "the payment did not settle; see the logs of the processes in $log_dir"
  log_step "the payment settled through the switch $(sed -n 's/.* to be sent by //p' "$log")"
  payment_id=$(grep -oE 'pay_[0-9a-f]{32}' "$log" | head -n 1 || true)
  log_note "$(PAYMENTS_DATABASE__URL=$owner_url "$programs/payctl" worker "$payment_id" 2>>"$log")"
}

# Two operators pay the amount back in: one proposes the deposit, the other one confirms it; each acts in a session of its own. In a database
# that is kept they may have other passwords or roles by now.
make_demo_deposit() {
  local log=$log_dir/operators.log change
  log_step "operators ann and bob pay 12.50 EUR into $source_account"
  : >"$log"
  log_in_operator ann && log_in_operator bob &&
    act_as ann accounts fund "$source_account" --amount 12.50 --reason "the demo's payment" &&
    change=$(grep -oE 'chg_[0-9a-f]{20}' "$log" | tail -n 1) &&
    log_note "ann proposed change $change; nothing is paid in yet" &&
    act_as bob changes confirm "$change" --reason "seen" &&
    act_as bob accounts show "$source_account" || {
    print_log_tail "$log"
    [ "$kind" = up ] || fail "the operators' deposit failed"
    log_note "the deposit failed; the log above says why"
    return 0
  }
  log_note "bob confirmed it: $(tail -n 1 "$log" | tr -s ' ')"
  act_as ann logout && act_as bob logout
}

# log_in_operator NAME: opens a session with the demo's password.
log_in_operator() {
  json_text operator_password "$log_dir/demo.json" | act_as "$1" login "$1" --operator-api "$operator_api"
}

# act_as NAME COMMAND..: runs payctl in the session of an operator.
act_as() {
  PAYCTL_SESSION=$run_dir/$1.session "$programs/payctl" "${@:2}" >>"$log" 2>&1
}

print_addresses() {
  local ui=http://127.0.0.1:$temporal_ui_port/namespaces/default/workflows
  cat <<TEXT

  This payment in the Temporal UI   $ui/$payment_id
  Break a payment yourself          http://127.0.0.1:$playground_port
${observes:+"  This payment's trace              http://127.0.0.1:$playground_port/traces#payment=$payment_id
"}  API page                          $api/docs
  Operators' API page               $operator_api/docs
${oidc:+"  OpenID provider                   $oidc_issuer; payctl login, as carol or dave, password demo-password-carol or -dave
"}  Transfers at the mock switches    $mock_switch/admin/book
                                    $sepa_switch/admin/book
  Metrics                           http://127.0.0.1:$api_metrics_port/metrics
$(printf '                                    http://%s/metrics\n' "${worker_addresses[@]}")
                                    $background_worker_metrics/metrics
                                    $notifier_metrics/metrics
                                    http://127.0.0.1:$operator_api_metrics_port/metrics
  Database, as its owner            $owner_url
  Logs                              ${log_dir#"$root"/}

  For payctl in a second terminal:

    export PATH="$programs:\$PATH" PAYMENTS_CONFIG=${PAYMENTS_CONFIG#"$root"/} PAYMENTS_API_URL=$api PAYCTL_OPERATOR_API=$operator_api \\
      PAYMENTS_DATABASE__URL=$owner_url PAYMENTS_TEMPORAL__ADDRESS=$PAYMENTS_TEMPORAL__ADDRESS \\
      PAYMENTS_SWITCHES__MOCK__BASE_URL=$mock_switch PAYMENTS_SWITCHES__SEPA__BASE_URL=$sepa_switch $(env | grep '^PAYMENTS_SWITCHES__MOCK__PROFILE__' | sort | tr '\n' ' ')

  To receive webhooks on this machine, see docs/operation.md, section "Outbound webhooks"

  The next payment; to $sepa_account it goes through the second switch, SEPA Instant:

    curl -sS $api/api/v1/payments \\
      -H 'Authorization: Bearer $api_key' -H "Idempotency-Key: demo-\$RANDOM\$RANDOM" -H 'Content-Type: application/json' \\
      -d '{"amount":"12.50","currency":"EUR","source_account":"$source_account","destination_account":"$destination_account"}'

TEXT
}

# Waits in the foreground. A process that ends is started again, so that a reader may kill it; if the database ends, or processes
# end too often, everything is stopped. stderr is closed meanwhile, because bash would report a killed process too;
# what starts a process again has it as descriptor 3.
watch_processes() {
  local ended=
  log_step "the system is up; Ctrl-C stops it"
  while true; do
    sleep 1
    find_ended_process
    [ -z "$ended" ] || restart_ended "$ended" || break
  done 3>&2 2>/dev/null
  if [ "$ended" = database ]; then
    print_log_tail "$cluster_log"
    fail "the database ended unexpectedly; its log is $cluster_log"
  fi
  ended=${ended##*/??-}
  require_alive "${ended%.process}" "$(sed -n 1p "$run_dir"/*-"$ended")"
}

# Leaves the record of an ended process in `ended`; empties it if every process runs.
find_ended_process() {
  local record
  ended=
  if ! kill -0 "$cluster_pid"; then
    ended=database
    return
  fi
  for record in "$run_dir"/*.process; do
    kill -0 "$(sed -n 1p "$record")" || ended=$record
  done
}

# restart_ended RECORD: starts an ended process again; its earlier log gets a number. Fails if processes have ended more than
# restarts_bound times in this run.
restarts=0
restarts_bound=20
restart_ended() {
  local name=${1##*/??-} code=0 pid
  name=${name%.process}
  [ "$restarts" -lt "$restarts_bound" ] || return 1
  restarts=$((restarts + 1))
  pid=$(sed -n 1p "$1")
  wait "$pid" || code=$?
  log_step "$name (pid $pid) ended, exit code $code$([ "$code" -le 128 ] || printf ', signal %s' "$(kill -l "$code")"); $(meanwhile "$name")"
  rm -f "$1"
  kill_children "$pid"
  mv "$log_dir/$name.log" "$log_dir/$name.$restarts.log"
  case $name in
    temporal) start_temporal "$temporal_port" "$temporal_file" "$temporal_ui_port" ;;
    broker) start_broker "$nats_port" "$broker_folder" ;;
    *) start_service "$name" ;;
  esac 2>&3
  log_note "$name runs again as pid $started_pid"
}

# meanwhile NAME: what goes on without the process.
meanwhile() {
  case $1 in
    payment-worker-*)
      if [ "$workers" -gt 1 ]; then
        printf 'another payment-worker carries its payments on within 10 s'
      else
        printf 'payments wait for it'
      fi
      ;;
    payments-api) printf 'payments go on, callbacks are repeated, new payments wait' ;;
    background-worker) printf 'payments go on, events and the sealing of the journal wait' ;;
    notifier) printf 'payments go on, notifications wait' ;;
    operator-api) printf 'payments go on, operators decide later' ;;
    broker) printf 'payments go on, events wait in the outbox' ;;
    temporal) printf 'payments are accepted and stored, and wait for it' ;;
    mock-switch) printf 'payments are accepted, and ask it again; those of the other switch go on' ;;
    mock-switch-sepa) printf 'payments through it are undecided until it answers; those of the other switch go on' ;;
    codec-server) printf 'payments go on, the Temporal UI shows them encrypted' ;;
    playground) printf 'payments go on' ;;
  esac
}
