# shellcheck shell=bash
# `./dev ci`: what has to hold before a change is merged, the quick checks first. Each part is a command of its own, so that
# it can be repeated alone.

ci() {
  [ $# = 0 ] || fail "ci takes no arguments"
  begin_session ci
  # Everything is built once here: data for a second build would only fill the disk.
  export CARGO_INCREMENTAL=0
  install_tools
  require_rust_components
  part "the lock file fits the manifests" cargo fetch --locked
  part "formatting" cargo fmt --all --check
  part "query data" "$root/dev" check-queries
  part "clippy" cargo clippy --workspace --all-targets -- -D warnings
  part "tests" "$root/dev" test
  pick_all_ports
  part "the system comes up and a payment settles" "$root/dev" up --once
  step "all checks passed"
}

# Runs one part and says how long it took; the first one that fails ends everything.
part() {
  local what=$1 begun=$SECONDS
  shift
  step "$what: $(printf '%s' "$*" | sed "s|$root/|./|")"
  attend "$@" || fail "$what: failed"
  step "$what: passed in $((SECONDS - begun)) s"
}

# Ports that are free now, so that this runs beside a system that is up.
pick_all_ports() {
  local setting
  for setting in DEV_PG_PORT DEV_TEMPORAL_PORT DEV_TEMPORAL_UI_PORT DEV_SWITCH_PORT DEV_API_PORT \
    DEV_WORKER_METRICS_PORT DEV_BACKGROUND_WORKER_METRICS_PORT DEV_NOTIFIER_METRICS_PORT DEV_NATS_PORT; do
    pick_port
    export "$setting=$REPLY"
  done
}
