# shellcheck shell=bash
# `./dev playground`: the playground's page with the simulation only. Needs Rust and a C compiler: no database, no Temporal.

playground() {
  [ $# = 0 ] || fail "playground takes no arguments; DEV_PLAYGROUND_PORT is its port"
  require_rust
  has_command cc || install_packages cc
  ! port_is_used "$playground_port" ||
    fail "port $playground_port is in use; if ./dev up runs, it has started the page: http://127.0.0.1:$playground_port. Otherwise set DEV_PLAYGROUND_PORT"
  log_step "building the page (cargo build -p playground --no-default-features); the first build takes a minute or two"
  cargo build -p playground --no-default-features --bin playground || fail "the page does not build; see the messages above"
  find_programs
  log_step "the page is at http://127.0.0.1:$playground_port; Ctrl-C stops it"
  PLAYGROUND_LISTEN=127.0.0.1:$playground_port RUST_LOG=${RUST_LOG:-warn} exec "$REPLY/playground"
}
