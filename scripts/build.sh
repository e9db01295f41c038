# shellcheck shell=bash
# Builds the programs in the development profile: a release build takes several times as long.

# Leaves the folder of the built programs in REPLY; the environment or the user's cargo configuration may change it.
find_programs() {
  REPLY=$(cargo metadata --no-deps --format-version 1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')/debug
}

# build [tests]: builds the programs that `./dev up` starts and, on request, every program and the tests.
# The whole workspace with a target that has development dependencies is selected in both cases, here an example: cargo then gives
# every library the same features, and none is compiled again by the other command. Without it, the features of four small
# libraries differ, and with them Temporal's SDK and everything above it.
build() {
  local targets=(--example generate) program
  for program in background-worker guide mock-switch naive-client notifier operator-api payctl payment-worker payments-api playground; do
    targets+=(--bin "$program")
  done
  [ "${1:-}" != tests ] || targets=(--bins --tests)
  log_step "building (cargo build --workspace ${targets[*]}); the first build takes minutes"
  run_in_foreground cargo build --workspace "${targets[@]}" || fail "the build failed; see the messages above"
  log_step "build finished"
}
