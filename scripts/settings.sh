# shellcheck shell=bash
# Ports and folders. The environment variables are listed in `./dev help`.

pg_port=${DEV_PG_PORT:-5632}
temporal_port=${DEV_TEMPORAL_PORT:-7233}
temporal_ui_port=${DEV_TEMPORAL_UI_PORT:-8233}
codec_port=${DEV_CODEC_PORT:-8234}
switch_port=${DEV_SWITCH_PORT:-8090}
sepa_switch_port=${DEV_SEPA_SWITCH_PORT:-8091}
api_port=${DEV_API_PORT:-8080}
api_metrics_port=${DEV_API_METRICS_PORT:-9104}
worker_metrics_port=${DEV_WORKER_METRICS_PORT:-9101}
background_worker_metrics_port=${DEV_BACKGROUND_WORKER_METRICS_PORT:-9102}
notifier_metrics_port=${DEV_NOTIFIER_METRICS_PORT:-9103}
operator_api_port=${DEV_OPERATOR_API_PORT:-8081}
operator_api_metrics_port=${DEV_OPERATOR_API_METRICS_PORT:-9105}
nats_port=${DEV_NATS_PORT:-4422}
playground_port=${DEV_PLAYGROUND_PORT:-8300}
otlp_port=${DEV_OTLP_PORT:-4317}
oidc_port=${DEV_OIDC_PORT:-9998}

dev_dir=${DEV_DIR:-$root/.dev}                                 # logs, run records and data; DEV_DIR keeps those of a check apart
tools_dir=${XDG_CACHE_HOME:-$HOME/.cache}/instant-payments/bin # shared by all clones of one user

ready_bound_s=60 # a server that is not ready by then has failed
stop_bound_s=15  # a process that has not ended by then is killed; the services stop within 10 s

# Loopback connections must not use a proxy, and the user's Temporal profile must not change the address.
export NO_PROXY="${NO_PROXY:+$NO_PROXY,}127.0.0.1,localhost"
export no_proxy=$NO_PROXY
unset "${!TEMPORAL_@}"

# Builds need no database; only scripts/queries.sh overrides this.
export SQLX_OFFLINE=true
