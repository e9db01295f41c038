# shellcheck shell=bash
# The query data in .sqlx: the database's description of each SQL statement, so that a build needs no database. This file
# generates it from the migrations and the code, to compare it with the committed data or to replace it.

# `./dev check-queries`: fails if the committed data differs from what the code and the migrations give.
check_queries() {
  [ $# = 0 ] || fail "check-queries takes no arguments"
  start_run queries
  generate_query_data
  mkdir -p .sqlx
  if ! diff -rq .sqlx "$generated" >"$log_dir/difference.txt"; then
    sed "s|$generated|the code|" "$log_dir/difference.txt" >&2
    fail "the query data is stale: run ./dev prepare-queries and commit .sqlx"
  fi
  log_step "the query data is up to date ($(count_files "$generated") statements)"
}

# `./dev prepare-queries`: replaces the committed data.
prepare_queries() {
  [ $# = 0 ] || fail "prepare-queries takes no arguments"
  start_run queries
  generate_query_data
  mkdir -p .sqlx
  rm -f .sqlx/query-*.json
  cp "$generated"/query-*.json .sqlx/
  log_step "wrote .sqlx ($(count_files .sqlx) statements)"
}

count_files() { find "$1" -name 'query-*.json' | wc -l | tr -d ' '; }

# Generates the data in the folder $generated.
generate_query_data() {
  local files packages
  install_tools
  files=$(files_with_queries)
  [ -n "$files" ] || fail "no source file contains a checked query"
  packages=$(packages_with_files "$files")
  start_test_database
  apply_migrations payments crates/payment-ledger/migrations crates/idempotency/migrations
  apply_migrations mock_switch crates/mock-switch/migrations
  make_temporary_folder queries
  generated=$REPLY
  log_step "checking the SQL statements of $(printf '%s' "$packages" | tr '\n' ' ')"
  expand_macros "$files" "$packages" || fail "the SQL statements could not be checked; see the messages above"
}

# apply_migrations DATABASE FOLDER..: creates a database and applies the migrations with psql, because building the programs
# that could do it needs the query data.
apply_migrations() {
  local database=$1 folder file sql=("$pg_bin/psql" -X -q -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$test_pg_port" -U payments)
  shift
  "${sql[@]}" -d postgres -c "CREATE DATABASE $database"
  for folder in "$@"; do
    for file in "$folder"/*.sql; do
      case $file in *.down.sql) continue ;; esac
      [ -f "$file" ] || continue
      "${sql[@]}" -d "$database" -1 -f "$file" >/dev/null || fail "the migration $file failed"
    done
  done
}

files_with_queries() {
  grep -rlE '\bquery(_as|_scalar|_file|_file_as|_file_scalar)?(_unchecked)?!' --include='*.rs' crates workers webhook operator-api tests || true
}

# Prints the packages that contain the given files, one per line.
packages_with_files() {
  local file folder
  printf '%s\n' "$1" | while IFS= read -r file; do
    folder=$(dirname "$file")
    while [ ! -f "$folder/Cargo.toml" ]; do folder=$(dirname "$folder"); done
    sed -n 's/^name *= *"\(.*\)"/\1/p' "$folder/Cargo.toml" | head -n 1
  done | sort -u
}

# SQL statements are checked only while their file is compiled, so the files are touched. Afterwards their times are
# restored, so that nothing else is compiled again, except for files that were edited meanwhile.
expand_macros() {
  local file package arguments=() code=0 times stamp
  make_temporary_folder times
  times=$REPLY
  stamp=$times/stamp
  while IFS= read -r package; do arguments=("${arguments[@]+"${arguments[@]}"}" -p "$package"); done <<<"$2"
  : >"$stamp"
  while IFS= read -r file; do
    mkdir -p "$times/$(dirname "$file")"
    touch -r "$file" "$times/$file"
    touch -r "$stamp" "$file"
  done <<<"$1"
  run_in_foreground env SQLX_OFFLINE=false SQLX_OFFLINE_DIR="$generated" DATABASE_URL="$(database_url "$test_pg_port" payments)" \
    MOCK_SWITCH_DATABASE_URL="$(database_url "$test_pg_port" mock_switch)" \
    cargo check --all-targets "${arguments[@]}" || code=$?
  while IFS= read -r file; do
    if [ ! "$file" -nt "$stamp" ]; then touch -r "$times/$file" "$file"; fi
  done <<<"$1"
  return "$code"
}
