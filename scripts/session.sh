# shellcheck shell=bash
# One run of the script: what it started is recorded in .dev/run/KIND.PID and stopped at its end, whatever ends it.
# A run that was killed outright leaves its folder behind; the next run finds it and cleans up first.

run_dir=   # records of this run
log_dir=   # logs of this run
announce=  # not empty: say what is being stopped

# Begins a run. Only one `up` may use a clone's database at a time; tests have their own and may run beside it.
begin_session() {
  local kind=$1
  sweep_leftovers "$kind"
  log_dir=$dev_dir/log/$kind
  mkdir -p "$dev_dir/run" "$log_dir"
  run_dir=$dev_dir/run/$kind
  [ "$kind" = up ] || run_dir=$run_dir.$$
  mkdir "$run_dir" 2>/dev/null || fail "another ./dev $kind is just starting in this clone"
  printf '%s\n' $$ "$(command_of $$)" >"$run_dir/owner"
  trap end_session EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
}

# Stops everything in reverse order of its start. Nothing may interrupt it, and a closed terminal must not end it.
end_session() {
  local code=$?
  set +e
  trap - EXIT
  trap '' INT TERM HUP PIPE
  [ -z "$announce" ] || printf '\n' 2>/dev/null
  stop_attended
  stop_recorded "$run_dir"
  rm -rf "$run_dir"
  [ -z "$announce" ] || step "all stopped" 2>/dev/null
  exit "$code"
}

# Undoes the records of a run, the latest first. With `verify`, a pid counts only if its command line is still the same:
# the run is an old one, and the number may belong to somebody else by now.
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
        if [ -z "$verify" ] || runs "$pid" "$(sed -n 2p "${files[i]}")"; then
          [ -z "$announce" ] || step "stopping ${name%.process}" 2>/dev/null
          stop_process "$pid"
        fi
        ;;
      *.cluster)
        [ -z "$announce" ] || step "stopping the database" 2>/dev/null
        stop_cluster "$(sed -n 1p "${files[i]}")"
        ;;
      *.folder) remove_temporary "$(sed -n 1p "${files[i]}")" ;;
    esac
  done
}

# Cleans up after runs that were killed before they could do it themselves.
sweep_leftovers() {
  local kind=$1 dir pid
  for dir in "$dev_dir"/run/*; do
    [ -d "$dir" ] || continue
    pid=$(sed -n 1p "$dir/owner" 2>/dev/null || true)
    if [ -n "$pid" ] && runs "$pid" "$(sed -n 2p "$dir/owner")"; then
      if [ "$kind" = up ] && [ "${dir##*/}" = up ]; then
        fail "the system is already up in this clone (process $pid); stop it there with Ctrl-C, or: kill $pid"
      fi
      continue
    fi
    step "cleaning up after a run that was killed (${dir##*/})"
    stop_recorded "$dir" verify
    rm -rf "$dir"
  done
}

# A folder for this run only, in REPLY; it goes when the run ends. With root, the database's user must reach it.
temporary_folder() {
  local parent=${TMPDIR:-/tmp}
  [ "$(id -u)" != 0 ] || parent=/var/tmp
  REPLY=$(mktemp -d "${parent%/}/instant-payments-$1.XXXXXX")
  record "$1.folder" "$REPLY"
}

# Removes a folder made by temporary_folder, and nothing that does not look like one.
remove_temporary() {
  case $1 in
    */instant-payments-*.??????) rm -rf "$1" ;;
  esac
}
