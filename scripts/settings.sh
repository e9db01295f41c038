# shellcheck shell=bash
# Ports and folders, each named once. What a person may change is an environment variable listed in `./dev help`.

pg_port=${DEV_PG_PORT:-5632}
temporal_port=${DEV_TEMPORAL_PORT:-7233}
temporal_ui_port=${DEV_TEMPORAL_UI_PORT:-8233}
switch_port=${DEV_SWITCH_PORT:-8090}
api_port=${DEV_API_PORT:-8080}
worker_metrics_port=${DEV_WORKER_METRICS_PORT:-9101}
background_worker_metrics_port=${DEV_BACKGROUND_WORKER_METRICS_PORT:-9102}
notifier_metrics_port=${DEV_NOTIFIER_METRICS_PORT:-9103}
nats_port=${DEV_NATS_PORT:-4422}

dev_dir=$root/.dev                                                 # this clone's logs, run records, Temporal data
tools_dir=${XDG_CACHE_HOME:-$HOME/.cache}/instant-payments/bin     # shared by all clones of one user

ready_bound_s=60 # a server that is not ready by then is broken
stop_bound_s=15  # a process that did not end by then is killed; the services allow themselves 10 s

# The loopback must not go through a proxy, and a Temporal profile of the user's must not redirect us.
export NO_PROXY="${NO_PROXY:+$NO_PROXY,}127.0.0.1,localhost"
export no_proxy=$NO_PROXY
unset "${!TEMPORAL_@}"

# Builds never need a database; scripts/queries.sh turns this off for itself.
export SQLX_OFFLINE=true
