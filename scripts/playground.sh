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

# Drops the databases that the real processes of an earlier playground have left: it creates new ones for its first run.
drop_playground_databases() {
  rm -rf "$log_dir/playground"
  mkdir -p "$log_dir/playground"
  printf '%s\n' "SELECT format('DROP DATABASE %I WITH (FORCE)', datname) FROM pg_database WHERE datname ~ '^(test|switch)_[0-9a-f]{32}\$' \\gexec" |
    run_pg psql -X -q -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$pg_port" -U payments -d postgres >"$log_dir/playground/databases.log" 2>&1 ||
    fail_with_log playground/databases "the databases of an earlier playground could not be dropped"
}
