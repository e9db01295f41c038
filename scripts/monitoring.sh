# shellcheck shell=bash
# `./dev generate-alerts`: generates deploy/alerts (rules and tables) from crates/monitoring.

generate_alerts() {
  [ $# = 0 ] || fail "generate-alerts takes no arguments"
  start_run alerts
  install_tools
  run_in_foreground cargo run -q -p monitoring --example generate "$root" || fail "deploy/alerts could not be written"
  log_step "wrote deploy/alerts"
}
