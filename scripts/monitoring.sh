# shellcheck shell=bash
# `./dev generate-monitoring`: generates deploy/alerts (rules and tables) and deploy/dashboards from crates/monitoring.

generate_monitoring() {
  [ $# = 0 ] || fail "generate-monitoring takes no arguments"
  start_run monitoring
  install_tools
  run_in_foreground cargo run -q -p monitoring --example generate "$root" || fail "deploy/alerts or deploy/dashboards could not be written"
  log_step "wrote deploy/alerts and deploy/dashboards"
}
