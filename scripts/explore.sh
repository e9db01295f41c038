# shellcheck shell=bash
# `./dev explore`: explores the payment protocol through every order of events. Needs Rust only: no database, no Temporal.

explore() {
  require_rust
  cargo build --quiet -p payment-explorer || fail "the explorer does not build; see the messages above"
  find_programs
  exec "$REPLY/explore" "$@"
}
