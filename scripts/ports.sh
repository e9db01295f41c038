# shellcheck shell=bash
# Which ports are taken, without any tool: bash itself can try to connect.

port_is_used() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Ends the script when a port of `up` is taken, naming all of them and the settings that change them.
require_free_ports() {
  local taken=0 seen=' ' line port
  for line in \
    "$pg_port DEV_PG_PORT the database" \
    "$temporal_port DEV_TEMPORAL_PORT the Temporal server" \
    "$temporal_ui_port DEV_TEMPORAL_UI_PORT the Temporal UI" \
    "$switch_port DEV_SWITCH_PORT the mock switch" \
    "$api_port DEV_API_PORT the payments API" \
    "$worker_metrics_port DEV_WORKER_METRICS_PORT the worker's metrics" \
    "$background_worker_metrics_port DEV_BACKGROUND_WORKER_METRICS_PORT the relay's metrics" \
    "$notifier_metrics_port DEV_NOTIFIER_METRICS_PORT the notifier's metrics" \
    "$nats_port DEV_NATS_PORT the message broker"; do
    port=${line%% *}
    line=${line#* }
    case $port in
      '' | *[!0-9]*) fail "${line%% *}='$port' is not a port number" ;;
    esac
    [ "$port" -ge 1 ] && [ "$port" -le 65535 ] || fail "${line%% *}=$port is not between 1 and 65535"
    case $seen in
      *" $port "*) fail "port $port is given twice; give ${line%% *} another one" ;;
    esac
    seen="$seen$port "
    if port_is_used "$port"; then
      printf 'dev: port %s for %s is in use; set %s to a free one\n' "$port" "${line#* }" "${line%% *}" >&2
      taken=1
    fi
  done
  [ "$taken" = 0 ] || exit 1
}

# Leaves a free port in REPLY. Below 32768, where Linux begins to hand out ports by itself.
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
