# shellcheck shell=bash
# `./dev sabotage`: puts each bug of tests/seeded into a copy of the code, one at a time, and runs the tests that its file names: each
# must pass without the bug and fail with it. The protocol has bugs of its own (crates/payment-explorer/seeded), which `./dev test` runs.

sabotage() {
  local names=("$@") name patch tree caught=0 missed=() url line
  [ $# -gt 0 ] || for patch in tests/seeded/*.patch; do
    name=${patch##*/}
    names+=("${name%.patch}")
  done
  for name in "${names[@]}"; do
    [ -f "tests/seeded/$name.patch" ] || fail "there is no bug tests/seeded/$name.patch"
  done
  start_run sabotage
  install_tools
  build_temporal
  start_test_database
  apply_migrations payments crates/payment-ledger/migrations crates/idempotency/migrations
  url=$(database_url "$test_pg_port" postgres)
  export TEST_DATABASE_URL=$url DATABASE_URL=$url MOCK_SWITCH_DATABASE_URL=$url TEST_TEMPORAL_ADDRESS=http://127.0.0.1:9
  export TEMPORAL_CLI=$temporal TEST_PG_BIN=$pg_bin TEST_NATS_SERVER=$nats_server
  # In a folder that stays, with a target folder of its own: only what a bug changes is built again.
  tree=$dev_dir/sabotage/tree
  export CARGO_TARGET_DIR=$dev_dir/sabotage/target CARGO_INCREMENTAL=0
  copy_tree "$tree"
  log_step "building the tests; the first time takes some ten minutes"
  (cd "$tree" && cargo build --workspace --bins --tests) >"$log_dir/build.log" 2>&1 || fail_with_log build "the tests do not build"
  log_step "the tests without the bugs"
  sort -u <(for name in "${names[@]}"; do grep -h '^Caught by: ' "tests/seeded/$name.patch"; done) >"$log_dir/tests.txt"
  while IFS= read -r line <&3; do
    run_named_test "$tree" "$line" >"$log_dir/sound.log" 2>&1 || fail_with_log sound "a test does not pass without a bug: $line"
    require_one_test "$log_dir/sound.log" "$line"
  done 3<"$log_dir/tests.txt"
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
  local tree=$1 name=$2 patch=$3 line log=$log_dir/$2.txt shows tests=0 started_s=$SECONDS
  shows=$(sed -n 's/^Shows: //p' "$patch")
  while IFS= read -r line <&3; do
    if run_named_test "$tree" "$line" >"$log" 2>&1; then
      log_step "MISSED $name: ${line##* } passed; see $log"
      return 1
    fi
    grep -q '^test result: FAILED' "$log" || fail "$name does not compile, or its test does not start; see $log"
    # A test of everything may fail for another reason.
    [ -z "$shows" ] || [[ $line != *" --test chaos "* ]] || grep -q "$shows" "$log" || fail "$name: the test failed, and not with '$shows'; see $log"
    log_step "caught $name: ${line##* } failed ($((SECONDS - started_s)) s)"
    tests=$((tests + 1))
  done 3< <(grep '^Caught by: ' "$patch")
  [ "$tests" -gt 0 ] || fail "$name names no test"
}

# require_one_test LOG LINE: fails unless a test ran.
require_one_test() {
  grep -q '^test result: ok. [1-9]' "$1" || fail "there is no such test: $2"
}

# run_named_test TREE LINE: runs what a line "Caught by: [VARIABLE=VALUE]... --test TARGET|--lib TEST" says. Always of the whole workspace:
# with one package alone, cargo would give the libraries other features and compile them again.
run_named_test() {
  local words
  read -r -a words <<<"${2#Caught by: }"
  set -- "$1" "${words[@]}"
  (
    cd "$1" || exit
    shift
    while [[ $1 == *=* ]]; do
      export "${1?}"
      shift
    done
    case " $* " in
      # It runs the programs.
      *" --test chaos "*) cargo build --workspace --bins || exit ;;
      # Its statements may have changed, and the query data with them.
      *" --test ledger "*) export SQLX_OFFLINE=false DATABASE_URL=${DATABASE_URL%/postgres}/payments ;;
    esac
    cargo test --workspace "${@:1:$#-1}" -- "${!#}"
  )
}
