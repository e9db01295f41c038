# shellcheck shell=bash
# Builds the programs in the development profile: a release build takes several times as long.

# Leaves the folder of the built programs in REPLY; the environment or the user's cargo configuration may change it.
find_programs() {
  REPLY=$(cargo metadata --no-deps --format-version 1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')/debug
}

# build [tests]: builds the programs and, on request, the tests. One cargo call builds both, because the tests'
# dependencies may enable features and the libraries would be compiled twice.
build() {
  local targets=(--bins)
  [ "${1:-}" != tests ] || targets=(--bins --tests)
  log_step "building (cargo build --workspace ${targets[*]}); the first build takes minutes"
  run_in_foreground cargo build --workspace "${targets[@]}" || fail "the build failed; see the messages above"
  log_step "build finished"
}
