# shellcheck shell=bash
# Compiling. The programs are built in the development profile: a release build takes several times as long.

# Where cargo puts the programs, in REPLY; it may be set by the environment or by a configuration of the user's.
programs_folder() {
  REPLY=$(cargo metadata --no-deps --format-version 1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')/debug
}

# Builds the programs; with `tests`, the tests too. Both in one go, since the tests' dependencies may turn on
# features and the libraries would be compiled twice.
build() {
  local what=(--bins)
  [ "${1:-}" != tests ] || what=(--bins --tests)
  step "building (cargo build --workspace ${what[*]}); the first time takes minutes"
  attend cargo build --workspace "${what[@]}" || fail "the build failed"
  step "built"
}
