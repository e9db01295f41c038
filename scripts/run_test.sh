#!/usr/bin/env bash
# What cargo runs with each test program of `./dev test`. Programs whose tests begin with the ledger's migrations get the server on which
# a new database has them already. In a whole run, which sets TEST_QUEUE, it writes a file that runs the program as cargo would have, in
# the same folder with the same environment; run_all_programs of test.sh runs these files.
set -euo pipefail

case ${CARGO_PKG_NAME:-} in
  payment-ledger | payments-api | operator-api | reconciliation | background-worker)
    export DATABASE_URL=$TEST_MIGRATED_DATABASE_URL
    ;;
esac
[ -n "${TEST_QUEUE:-}" ] || exec "$@"
{
  export -p
  printf 'cd %q\nexec' "$PWD"
  printf ' %q' "$@"
  echo
} >"$TEST_QUEUE/$(basename "$1").sh"
