# shellcheck shell=bash
# One run of ./dev: its processes and folders are recorded in .dev/run/KIND.PID and released when it ends, for whatever
# reason. A run that was killed by SIGKILL leaves its records behind; the next run cleans up first.

run_dir=      # records of this run
log_dir=      # logs of this run
report_stops= # not empty: print each stopped process

# start_run KIND. Only one `up` may run per clone, because it uses the clone's database; other kinds may run beside it.
start_run() {
  local kind=$1
  clean_up_killed_runs "$kind"
  log_dir=$dev_dir/log/$kind
  mkdir -p "$dev_dir/run" "$log_dir"
  rm -f "$log_dir"/*.[0-9]*.log # logs of services that an earlier run started again
  run_dir=$dev_dir/run/$kind
  [ "$kind" = up ] || run_dir=$run_dir.$$
  mkdir "$run_dir" 2>/dev/null || fail "another ./dev $kind is starting in this clone; wait for it or stop it"
  printf '%s\n' $$ "$(command_of $$)" >"$run_dir/owner"
  trap finish_run EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
}

# Releases everything in reverse order. It ignores signals, so that neither Ctrl-C nor a closed terminal interrupts it.
finish_run() {
  local code=$?
  set +e
  trap - EXIT
  trap '' INT TERM HUP PIPE
  [ -z "$report_stops" ] || printf '\n' 2>/dev/null
  stop_foreground
  stop_recorded "$run_dir"
  rm -rf "$run_dir"
  [ -z "$report_stops" ] || log_step "all stopped" 2>/dev/null
  exit "$code"
}

# stop_recorded FOLDER [verify]: releases the recorded resources of a run, the latest first. With `verify`, a process is
# stopped only if its command line is unchanged, because its pid may have been reused.
stop_recorded() {
  local dir=$1 verify=${2:-} files=("$1"/[0-9]*) i name pid
  i=${#files[@]}
  while [ "$i" -gt 0 ]; do
    i=$((i - 1))
    [ -f "${files[i]}" ] || continue
    name=${files[i]##*/}
    name=${name#*-}
    case $name in
      *.process)
        pid=$(sed -n 1p "${files[i]}")
        if [ -z "$verify" ] || is_same_process "$pid" "$(sed -n 2p "${files[i]}")"; then
          [ -z "$report_stops" ] || log_step "stopping ${name%.process}" 2>/dev/null
          stop_process "$pid"
        fi
        ;;
      *.cluster)
        [ -z "$report_stops" ] || log_step "stopping the database" 2>/dev/null
        stop_cluster "$(sed -n 1p "${files[i]}")"
        ;;
      *.folder) remove_temporary_folder "$(sed -n 1p "${files[i]}")" ;;
    esac
  done
}

# clean_up_killed_runs KIND: releases the resources of runs that ended without doing so.
clean_up_killed_runs() {
  local kind=$1 dir pid
  for dir in "$dev_dir"/run/*; do
    [ -d "$dir" ] || continue
    pid=$(sed -n 1p "$dir/owner" 2>/dev/null || true)
    if [ -n "$pid" ] && is_same_process "$pid" "$(sed -n 2p "$dir/owner")"; then
      if [ "$kind" = up ] && [ "${dir##*/}" = up ]; then
        fail "the system is already up in this clone (process $pid); stop it there with Ctrl-C, or run: kill $pid"
      fi
      continue
    fi
    log_step "cleaning up after a killed run (${dir##*/})"
    stop_recorded "$dir" verify
    rm -rf "$dir"
  done
}

# make_temporary_folder NAME [PARENT]: creates a folder that is deleted at the end of the run; leaves its path in REPLY. For root it
# is below /var/tmp by default, because the database's user needs access.
make_temporary_folder() {
  local parent=${TMPDIR:-/tmp}
  [ "$(id -u)" != 0 ] || parent=/var/tmp
  parent=${2:-$parent}
  REPLY=$(mktemp -d "${parent%/}/instant-payments-$1.XXXXXX")
  record_resource "$1.folder" "$REPLY"
}

# Name of the file in which a Temporal server of a run keeps its histories.
histories_file=histories.db

# keep_databases: the database folders of this run outlive it, with the histories of its Temporal server, so that a failure can be examined,
# until remove_kept_databases.
keep_databases() {
  local file folder
  for file in "$run_dir"/*-database.folder "$run_dir"/*-migrated.folder "$run_dir"/*-temporal.folder; do
    [ -f "$file" ] || continue
    folder=$(sed -n 1p "$file")
    printf '%s\n' "$folder" >>"$dev_dir/kept-databases"
    rm "$file"
    if [ -f "$folder/$histories_file" ]; then
      log_note "kept until the next run: $temporal server start-dev --db-filename $folder/$histories_file"
      continue
    fi
    log_note "kept until the next run: ${pg_prefix[*]+"${pg_prefix[*]} "}$pg_bin/pg_ctl -D $folder/data -o \"$(sed -n 1p "$folder/options")\" start"
  done
}

# Deletes the database folders that an earlier run kept.
remove_kept_databases() {
  local folder
  [ -f "$dev_dir/kept-databases" ] || return 0
  while read -r folder; do
    remove_temporary_folder "$folder"
  done <"$dev_dir/kept-databases"
  rm "$dev_dir/kept-databases"
}

# Deletes a folder of make_temporary_folder; refuses any other name.
remove_temporary_folder() {
  case $1 in
    */instant-payments-*.??????) rm -rf "$1" ;;
  esac
}
