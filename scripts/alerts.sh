# shellcheck shell=bash
# `./dev generate-alerts`: the alert rules and their lists, from crates/monitoring.

generate_alerts() {
  [ $# = 0 ] || fail "generate-alerts takes no arguments"
  begin_session alerts
  install_tools
  attend cargo run -q -p monitoring --example generate "$root" || fail "deploy/alerts could not be written"
  step "wrote deploy/alerts"
}
