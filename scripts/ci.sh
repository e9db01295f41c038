# shellcheck shell=bash
# `./dev ci`: the checks that must pass before a change is merged, the fast ones first. Each check is a command that can be
# repeated alone.

ci() {
  [ $# = 0 ] || fail "ci takes no arguments"
  start_run ci
  # Nothing is built twice here: incremental build data would only fill the disk.
  export CARGO_INCREMENTAL=0
  install_tools
  require_rust_components
  run_check "lock file matches the manifests" cargo fetch --locked
  run_check "packages" "$root/dev" deny
  run_check "formatting" cargo fmt --all --check
  run_check "clippy and query data" "$root/dev" lint
  run_check "clippy of the page alone" cargo clippy -p playground --no-default-features -- -D warnings
  run_check "tests" "$root/dev" test
  pick_all_ports
  run_check "the system starts and a payment settles through each switch" "$root/dev" up --once
  run_check "what is killed is started again" "$root/dev" check-up
  # With the programs of the tests: whether it runs, not what it measures.
  find_programs
  run_check "the bench of payments runs" env "BENCH_PROGRAMS=$REPLY" "$root/dev" bench payments -n 20 -c 5
  log_step "all checks passed"
}

# run_check NAME COMMAND..: runs one check and reports its duration; the first failure ends the run.
run_check() {
  local name=$1 started_s=$SECONDS
  shift
  log_step "$name: $(printf '%s' "$*" | sed "s|$root/|./|")"
  run_in_foreground "$@" || fail "the check failed: $name"
  log_step "$name: passed in $((SECONDS - started_s)) s"
}

# Picks free ports, so that the checks can run beside `./dev up`.
pick_all_ports() {
  local setting
  for setting in DEV_PG_PORT DEV_TEMPORAL_PORT DEV_TEMPORAL_UI_PORT DEV_CODEC_PORT DEV_SWITCH_PORT DEV_SEPA_SWITCH_PORT DEV_API_PORT DEV_API_METRICS_PORT \
    DEV_WORKER_METRICS_PORT DEV_BACKGROUND_WORKER_METRICS_PORT DEV_NOTIFIER_METRICS_PORT DEV_OPERATOR_API_PORT DEV_OPERATOR_API_METRICS_PORT DEV_NATS_PORT DEV_PLAYGROUND_PORT DEV_OTLP_PORT DEV_OIDC_PORT; do
    pick_port
    export "$setting=$REPLY"
  done
}
