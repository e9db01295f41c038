# shellcheck shell=bash
# `./dev check-up`: starts the system as a reader does, follows what it prints for a second terminal, and kills it part by part: what
# payments can wait for is started again, and only the end of the database stops everything. With folders and ports of its own, beside the
# data that `./dev up` keeps.

check_up_bound_s=300 # longest wait; the first start builds the programs

check_up() {
  local name up_log
  [ $# = 0 ] || fail "check-up takes no arguments"
  start_run check-up
  export DEV_DIR=$dev_dir/check-up
  up_log=$log_dir/up.log
  run_in_foreground "$root/dev" reset # left by a check that failed
  pick_all_ports
  log_step "starting ./dev up --workers 2 --observe"
  start_process up "$root/dev" up --workers 2 --observe
  await_line "the system is up"
  use_second_terminal
  log_step "the pages answer"
  for name in "" traces api/offer; do
    wait_ready up "http://127.0.0.1:$DEV_PLAYGROUND_PORT/$name"
  done
  log_step "a payment whose worker is killed (payctl trigger crash-after-accepted)"
  run_logged "$log_dir/trigger.log" payctl trigger crash-after-accepted ||
    fail "the payment did not end as expected"
  await_line "payment-worker-[12] runs again as pid"
  for name in payments-api background-worker notifier operator-api broker temporal mock-switch mock-switch-sepa codec-server playground; do
    log_step "kill -9 $name"
    kill -KILL "$(sed -n 1p "$DEV_DIR"/run/up/[0-9]*-"$name".process)"
    await_line " $name runs again as pid"
  done
  log_step "a payment after all that"
  run_logged "$log_dir/pay.log" payctl pay --from DE-ALICE-EUR --to FR-CAROL-EUR --amount 12.50 --currency EUR --watch ||
    fail "the payment did not settle"
  log_step "kill -9 of the database stops everything"
  kill -KILL "$(sed -n 1p "$(cat "$DEV_DIR"/run/up/[0-9]*-database.cluster)/data/postmaster.pid")"
  await_line "the database ended unexpectedly"
  await_end
  [ ! -d "$DEV_DIR/run/up" ] || fail "./dev up left its records in $DEV_DIR/run/up"
  run_in_foreground "$root/dev" reset
}

# await_line PATTERN: waits until the output of ./dev up has a line that matches.
await_line() {
  local deadline=$((SECONDS + check_up_bound_s)) ended=
  until grep -q -- "$1" "$up_log"; do
    [ -z "$ended" ] || require_alive up "$started_pid"
    # What it printed last may have come between the two looks.
    if is_gone "$started_pid"; then ended=yes; fi
    [ "$SECONDS" -lt "$deadline" ] || fail_with_log up "./dev up printed no line like '$1' within $check_up_bound_s s"
    sleep 0.2
  done
}

# Waits until ./dev up has ended.
await_end() {
  local deadline=$((SECONDS + check_up_bound_s))
  until is_gone "$started_pid"; do
    [ "$SECONDS" -lt "$deadline" ] || fail_with_log up "./dev up did not end within $check_up_bound_s s"
    sleep 0.2
  done
}

# Takes the settings of payctl as a reader copies them from the output.
use_second_terminal() {
  local settings
  settings=$(sed -n '/^    export PATH=/,/^$/p' "$up_log")
  [ -n "$settings" ] || fail "./dev up printed no settings for a second terminal"
  eval "$settings"
}
