# shellcheck shell=bash
# `./dev mutants CRATE`: cargo-mutants changes one expression of a crate at a time, in a copy of the code, and the crate's tests must fail.
# .cargo/mutants.toml lists those under which no test can see a difference, with the reasons.

mutants_release=27.1.0

mutants() {
  local crate=${1:-} code=0 outcomes
  case $crate in
    payment-protocol | payment-ledger | idempotency | switch-client) shift ;;
    *) fail "name a crate: payment-protocol, payment-ledger, idempotency or switch-client; further arguments are passed to cargo mutants" ;;
  esac
  start_run mutants
  install_tools
  has_command cargo-mutants || PATH=$tools_dir:$PATH
  has_command cargo-mutants || build_cargo_program cargo-mutants "$mutants_release"
  start_test_database
  DATABASE_URL=$(database_url "$test_pg_port" postgres)
  if [ "$crate" = payment-ledger ]; then
    log_step "building payctl, which migrates the tests' database"
    run_logged "$log_dir/build.log" cargo build -p payctl || fail "payctl does not build; see the log above"
    start_migrated_database
    DATABASE_URL=$TEST_MIGRATED_DATABASE_URL
  fi
  export DATABASE_URL
  log_step "changing $crate, one expression at a time; the outcomes are in ${log_dir#"$root"/}/mutants.out"
  run_in_foreground cargo mutants -p "$crate" --test-package "$crate" --timeout 300 --output "$log_dir" "$@" || code=$?
  outcomes=$log_dir/mutants.out
  [ -f "$outcomes/caught.txt" ] || fail "cargo mutants ended without an outcome"
  log_step "mutants of $crate: $(wc -l <"$outcomes/caught.txt") caught, $(wc -l <"$outcomes/missed.txt") missed, $(wc -l <"$outcomes/timeout.txt") without an end, $(wc -l <"$outcomes/unviable.txt") that do not compile"
  return "$code"
}
