# shellcheck shell=bash
# `./dev explore`: the payment protocol, walked through every order of events. Needs Rust alone: no database, no Temporal.

explore() {
  require_rust
  cargo build --quiet -p payment-explorer || fail "the explorer does not build"
  programs_folder
  exec "$REPLY/explore" "$@"
}
