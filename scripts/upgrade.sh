# shellcheck shell=bash
# `./dev upgrade REVISION`: the payment-worker of an earlier revision and this one's carry the payments together, under load, back and
# back. The revision is built in a copy of its files.

upgrade() {
  local revision=${1:-} tree=$dev_dir/upgrade/tree shared=upgrades::r29_two_compatible_releases_share_the_payments
  [ $# = 1 ] || fail "name a revision: ./dev upgrade REVISION, for example HEAD~1"
  git rev-parse --quiet --verify "$revision^{commit}" >/dev/null || fail "git knows no revision '$revision'"
  start_run upgrade
  install_tools
  rm -rf "$tree"
  mkdir -p "$tree"
  git archive "$revision" | tar -x -m -C "$tree" || fail "the files of $revision could not be copied"
  log_step "building the payment-worker of $(git rev-parse --short "$revision"); the first time takes some ten minutes"
  (cd "$tree" && CARGO_TARGET_DIR=$dev_dir/upgrade/target CARGO_INCREMENTAL=0 cargo build -p payment-worker --bin payment-worker) \
    >"$log_dir/build.log" 2>&1 || fail_with_log build "the payment-worker of $revision does not build"
  export TEST_OTHER_WORKER=$dev_dir/upgrade/target/debug/payment-worker
  start_test_servers
  build tests
  run_logged "$log_dir/upgrade.log" cargo test --workspace --test faults -- --exact "$shared" ||
    fail "the two releases do not carry the payments together; the log above says why"
  require_one_test "$log_dir/upgrade.log" "$shared"
  log_step "the payment-workers of $(git rev-parse --short "$revision") and of these files carried the payments together"
}
