# shellcheck shell=bash
# `./dev up --strategy NAME`: the demo whose first switch has one of the five submit strategies, against a mock switch without the
# capabilities that the strategy does without. docs/strategies.md compares them; tests/strategies/switch_kinds.rs has the same five
# pairs of profile and switch.

strategy_names="query, reference, write_ahead, at_most_once, validate"

# configure_strategy NAME: overrides the switch profile of the demo and the capabilities of the mock switch.
configure_strategy() {
  case $1 in
    query) ;; # the demo's own profile
    reference)
      set_profile STRATEGY=reference HAS_QUERY=false
      set_mock QUERY=false
      ;;
    write_ahead)
      set_profile STRATEGY=write_ahead DEDUPLICATES=false
      set_mock DEDUP=false
      ;;
    at_most_once)
      set_profile STRATEGY=at_most_once DEDUPLICATES=false HAS_QUERY=false
      set_mock DEDUP=false QUERY=false
      ;;
    validate)
      set_profile STRATEGY=validate DEDUPLICATES=false TOMBSTONES=false HAS_CALLBACK=false
      set_mock KEYS=false DEDUP=false TOMBSTONE=false CALLBACK=false
      ;;
    *) fail "unknown submit strategy '$1'; choose one of: $strategy_names" ;;
  esac
}

# set_profile KEY=VALUE..: what the service knows of the switch.
set_profile() {
  local setting
  for setting in "$@"; do export "PAYMENTS_SWITCHES__MOCK__PROFILE__$setting"; done
}

# set_mock KEY=VALUE..: what the mock switch really offers.
set_mock() {
  local setting
  for setting in "$@"; do export "MOCK_SWITCH_SHAPE__$setting"; done
}
