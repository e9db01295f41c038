# shellcheck shell=bash
# `./dev upgrade REVISION`: the payment-worker of an earlier revision and this one's run at the same time, under load, through an upgrade and
# its rollback: with worker versioning, where each payment ends on the release on which it started, and without, where they carry the
# payments together. The revision is built in a copy of its files.

upgrade() {
  local revision=${1:-} tree=$dev_dir/upgrade/tree test
  [ $# = 1 ] || fail "name a revision: ./dev upgrade REVISION, for example HEAD~1"
  git rev-parse --quiet --verify "$revision^{commit}" >/dev/null || fail "git knows no revision '$revision'"
  start_run upgrade
  install_tools
  build_temporal
  rm -rf "$tree"
  mkdir -p "$tree"
  git archive "$revision" | tar -x -m -C "$tree" || fail "the files of $revision could not be copied"
  log_step "building the payment-worker of $(git rev-parse --short "$revision"); the first time takes some ten minutes"
  (cd "$tree" && CARGO_TARGET_DIR=$dev_dir/upgrade/target CARGO_INCREMENTAL=0 cargo build -p payment-worker --bin payment-worker) \
    >"$log_dir/build.log" 2>&1 || fail_with_log build "the payment-worker of $revision does not build"
  export TEST_OTHER_WORKER=$dev_dir/upgrade/target/debug/payment-worker
  start_test_servers
  build tests
  for test in r29_with_build_ids_each_payment_ends_on_the_release_on_which_it_started r29_two_compatible_releases_share_the_payments; do
    test=upgrades::$test
    run_logged "$log_dir/upgrade.log" cargo test --workspace --test faults -- --exact "$test" ||
      fail "the payments do not end right with both releases; the log above says why"
    require_one_test "$log_dir/upgrade.log" "$test"
  done
  log_step "the payments ended right with the payment-workers of $(git rev-parse --short "$revision") and of these files, with and without build ids"
}
