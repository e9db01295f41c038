# shellcheck shell=bash
# `./dev playground`: serves the playground's page. Needs Rust and a C compiler: no database, no Temporal.

playground() {
  [ $# = 0 ] || fail "playground takes no arguments; DEV_PLAYGROUND_PORT is its port"
  require_rust
  has_command cc || install_packages cc
  ! port_is_used "$playground_port" ||
    fail "port $playground_port is in use; set DEV_PLAYGROUND_PORT to a free port"
  log_step "building the page (cargo build -p playground); the first build takes a minute or two"
  cargo build -p playground || fail "the page does not build; see the messages above"
  find_programs
  log_step "the page is at http://127.0.0.1:$playground_port; Ctrl-C stops it"
  PLAYGROUND_LISTEN=127.0.0.1:$playground_port RUST_LOG=${RUST_LOG:-warn} exec "$REPLY/playground"
}
