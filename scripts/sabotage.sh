# shellcheck shell=bash
# `./dev sabotage`: puts each bug of tests/seeded into a copy of the code, one at a time, and runs the tests that its file names: each
# must fail. The protocol has bugs of its own (crates/payment-explorer/seeded), which `./dev test` runs.

sabotage() {
  local names=("$@") name patch tree caught=0 missed=() url
  [ $# -gt 0 ] || for patch in tests/seeded/*.patch; do
    name=${patch##*/}
    names+=("${name%.patch}")
  done
  for name in "${names[@]}"; do
    [ -f "tests/seeded/$name.patch" ] || fail "there is no bug tests/seeded/$name.patch"
  done
  start_run sabotage
  install_tools
  start_test_database
  apply_migrations payments crates/payment-ledger/migrations crates/idempotency/migrations
  url=$(database_url "$test_pg_port" postgres)
  export TEST_DATABASE_URL=$url DATABASE_URL=$url MOCK_SWITCH_DATABASE_URL=$url TEST_TEMPORAL_ADDRESS=http://127.0.0.1:9
  export TEMPORAL_CLI=$temporal TEST_PG_BIN=$pg_bin TEST_NATS_SERVER=$nats_server
  # In a folder that stays, with a target folder of its own: only what a bug changes is built again.
  tree=$dev_dir/sabotage/tree
  export CARGO_TARGET_DIR=$dev_dir/sabotage/target CARGO_INCREMENTAL=0
  copy_tree "$tree"
  for name in "${names[@]}"; do
    patch=$root/tests/seeded/$name.patch
    apply_bug "$tree" "$patch" || fail "$name does not apply; the code has changed, so write the bug again"
    if is_caught "$tree" "$name" "$patch"; then caught=$((caught + 1)); else missed+=("$name"); fi
    apply_bug "$tree" "$patch" -R || fail "$name cannot be taken out of $tree; remove that folder"
  done
  [ ${#missed[@]} = 0 ] || log_step "not caught: ${missed[*]}"
  log_step "caught $caught of ${#names[@]}"
  [ ${#missed[@]} = 0 ]
}

# copy_tree FOLDER: makes the folder equal to the committed and changed files here, with their times, so that cargo builds again only
# what has changed since the last run.
copy_tree() {
  local tree=$1 file
  mkdir -p "$tree"
  git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [ -f "$file" ] || continue
    cmp -s "$file" "$tree/$file" && continue
    mkdir -p "$tree/$(dirname "$file")"
    cp -p "$file" "$tree/$file"
    touch "$tree/$file"
  done
  (cd "$tree" && find . -type f -not -path './target/*') | while IFS= read -r file; do
    [ -f "$root/$file" ] || rm "$tree/$file"
  done
}

# apply_bug TREE PATCH [-R]: puts a bug in, or takes it out. The copy is within this repository and not a part of it.
apply_bug() {
  local tree=$1 patch=$2
  shift 2
  (cd "$tree" && GIT_CEILING_DIRECTORIES=${tree%/*} git apply "$@" "$patch")
}

# is_caught TREE NAME PATCH: whether each test that the patch names fails.
is_caught() {
  local tree=$1 name=$2 patch=$3 line words log started_s=$SECONDS
  while IFS= read -r line; do
    # Variables, then the arguments of cargo test, the last of which is the test.
    read -r -a words <<<"${line#Caught by: }"
    log=$log_dir/sabotage-$name.txt
    if ! run_named_test "$tree" "${words[@]}" >"$log" 2>&1; then
      grep -q '^test result: FAILED' "$log" || fail "$name does not compile, or its test does not start; see $log"
      log_step "caught $name: ${words[${#words[@]} - 1]} failed ($((SECONDS - started_s)) s)"
    else
      grep -q '^test result: ok. [1-9]' "$log" || fail "$name names a test that does not exist; see $log"
      log_step "MISSED $name: ${words[${#words[@]} - 1]} passed; see $log"
      return 1
    fi
  done < <(grep '^Caught by: ' "$patch")
}

# run_named_test TREE [VARIABLE=VALUE]... CARGO_ARGUMENT.. TEST
run_named_test() {
  local tree=$1 last
  shift
  (
    cd "$tree"
    while [[ $1 == *=* ]]; do
      export "${1?}"
      shift
    done
    # Tests of the whole system run the programs.
    [[ " $* " != *" system-tests "* ]] || cargo build --workspace --bins
    last=${!#}
    set -- "${@:1:$#-1}"
    # Statements may have changed, and the query data with them.
    if [[ " $* " == *" payment-ledger "* || " $* " == *" idempotency "* || " $* " == *" outbox "* ]]; then
      export SQLX_OFFLINE=false DATABASE_URL=${DATABASE_URL%/postgres}/payments
    fi
    cargo test "$@" -- "$last"
  )
}
