# shellcheck shell=bash
# Detects ports in use without external tools: bash can open a connection itself.

port_is_used() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# require_free_ports OBSERVES OIDC: fails if a port of `./dev up` is in use; prints each of them with the setting that changes it. The
# collector of traces and the OpenID provider take a port if their argument is not empty.
require_free_ports() {
  local in_use=0 seen=' ' line port observing=${1:+"$otlp_port DEV_OTLP_PORT the collector of traces"}
  local providing=${2:+"$oidc_port DEV_OIDC_PORT the OpenID provider"}
  for line in \
    "$pg_port DEV_PG_PORT the database" \
    "$temporal_port DEV_TEMPORAL_PORT the Temporal server" \
    "$temporal_ui_port DEV_TEMPORAL_UI_PORT the Temporal UI" \
    "$codec_port DEV_CODEC_PORT the Temporal UI's codec server" \
    "$switch_port DEV_SWITCH_PORT the mock switch" \
    "$sepa_switch_port DEV_SEPA_SWITCH_PORT the second mock switch" \
    "$api_port DEV_API_PORT the payments API" \
    "$api_metrics_port DEV_API_METRICS_PORT the payments API's metrics" \
    "$worker_metrics_port DEV_WORKER_METRICS_PORT the payment-worker's metrics" \
    "$background_worker_metrics_port DEV_BACKGROUND_WORKER_METRICS_PORT the background-worker's metrics" \
    "$notifier_metrics_port DEV_NOTIFIER_METRICS_PORT the notifier's metrics" \
    "$operator_api_port DEV_OPERATOR_API_PORT the operators' API" \
    "$operator_api_metrics_port DEV_OPERATOR_API_METRICS_PORT the operators' API's metrics" \
    "$nats_port DEV_NATS_PORT the message broker" \
    "$playground_port DEV_PLAYGROUND_PORT the playground" ${observing:+"$observing"} ${providing:+"$providing"}; do
    port=${line%% *}
    line=${line#* }
    case $port in
      '' | *[!0-9]*) fail "${line%% *}='$port' is not a port number" ;;
    esac
    [ "$port" -ge 1 ] && [ "$port" -le 65535 ] || fail "${line%% *}=$port is not between 1 and 65535"
    case $seen in
      *" $port "*) fail "port $port is used twice; set ${line%% *} to another port" ;;
    esac
    seen="$seen$port "
    if port_is_used "$port"; then
      printf 'dev: port %s for %s is in use; set %s to a free port\n' "$port" "${line#* }" "${line%% *}" >&2
      in_use=1
    fi
  done
  [ "$in_use" = 0 ] || exit 1
}

# Leaves a free port in REPLY, below 32768, where the ephemeral ports of Linux begin.
picked_ports=' '
pick_port() {
  while :; do
    REPLY=$((20000 + RANDOM % 12000))
    case $picked_ports in *" $REPLY "*) continue ;; esac
    port_is_used "$REPLY" && continue
    picked_ports="$picked_ports$REPLY "
    return
  done
}
