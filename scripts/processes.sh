# shellcheck shell=bash
# Starting, watching and stopping processes. Each one runs in a session of its own, so that the terminal's Ctrl-C reaches
# only this script, which then stops them in order. Processes are known by pid and command line, never by name alone.

attended= # pid of the long command in the foreground, if any

# Replaces the subshell by the command, leading a session of its own. macOS has no setsid program, but perl.
exec_in_session() {
  trap - INT QUIT # bash lets background commands ignore both, and Go and Rust programs would inherit that
  if command -v setsid >/dev/null; then
    exec setsid "$@"
  fi
  exec perl -e 'use POSIX; POSIX::setsid(); exec { $ARGV[0] } @ARGV or exit 127' -- "$@"
}

# Starts a server in the background: start NAME COMMAND..; its log is $log_dir/NAME.log.
started=0
start() {
  local name=$1
  shift
  (exec_in_session "$@") </dev/null >"$log_dir/$name.log" 2>&1 &
  started_pid=$!
  record "$name.process" "$started_pid" "$*"
}

# Remembers something to be undone, in files, so that also the next run can clean up after a killed one.
record() {
  local file
  started=$((started + 1))
  file=$(printf '%s/%02d-%s' "$run_dir" "$started" "$1")
  shift
  printf '%s\n' "$@" >"$file"
}

# Runs a long command while signals stay heard: bash would delay them until a foreground command ends.
attend() {
  local code=0
  (exec_in_session "$@") &
  attended=$!
  wait "$attended" || code=$?
  attended=
  return "$code"
}

# The same for a command whose output only matters when it fails; shows its latest line, so that one sees it move.
attend_quietly() {
  local log=$1 code=0 begun=$SECONDS spoken=$SECONDS
  shift
  (exec_in_session "$@") >"$log" 2>&1 &
  attended=$!
  while kill -0 "$attended" 2>/dev/null; do
    sleep 1
    if [ -t 1 ]; then
      printf '\r\033[K         %4d s  %.60s' "$((SECONDS - begun))" "$(latest_line "$log")"
    elif [ $((SECONDS - spoken)) -ge 20 ]; then
      spoken=$SECONDS
      note "$((SECONDS - begun)) s, line $(($(wc -l <"$log"))): $(latest_line "$log")"
    fi
  done
  [ ! -t 1 ] || printf '\r\033[K'
  wait "$attended" || code=$?
  attended=
  [ "$code" = 0 ] || show_log "$log"
  return "$code"
}

latest_line() { tail -n 1 "$1" | tr -d '\r' | cut -c 1-60; }

# The command line of a process, empty when there is none.
command_of() {
  if [ -d /proc/self ]; then
    { tr '\0' ' ' <"/proc/$1/cmdline" | sed 's/ $//'; } 2>/dev/null || true
  else
    ps -o command= -p "$1" 2>/dev/null || true
  fi
}

# Whether a pid is still the process we know; a script's interpreter may stand before its name.
runs() {
  [ -n "$2" ] || return 1
  case $(command_of "$1") in
    *"$2") return 0 ;;
    *) return 1 ;;
  esac
}

# Whether a process has ended. One that nobody has waited for yet still has its number, but no command line.
is_gone() {
  ! kill -0 "$1" 2>/dev/null || [ -z "$(command_of "$1")" ]
}

# Ends a process by pid: asks, waits, then kills it with its whole session.
stop_process() {
  local pid=$1 tries=$((stop_bound_s * 10))
  kill -TERM "$pid" 2>/dev/null || return 0
  until is_gone "$pid"; do
    if [ "$tries" = 0 ]; then
      kill -KILL -- "-$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null || true
      return 0
    fi
    tries=$((tries - 1))
    sleep 0.1
  done
}

# Ends the attended command with all it started; a nested ./dev gets the time to stop its own processes.
stop_attended() {
  local tries=300
  [ -n "$attended" ] || return 0
  kill -TERM -- "-$attended" 2>/dev/null
  until is_gone "$attended" || [ "$tries" = 0 ]; do
    tries=$((tries - 1))
    sleep 0.1
  done
  kill -KILL -- "-$attended" 2>/dev/null
  attended=
}

# Waits until a server says it is ready: wait_ready NAME URL. It must be the one started last.
wait_ready() {
  local name=$1 url=$2 deadline=$((SECONDS + ready_bound_s))
  until curl -fsS -o /dev/null --max-time 2 --noproxy '*' "$url" 2>/dev/null; do
    require_alive "$name" "$started_pid"
    if [ "$SECONDS" -ge "$deadline" ]; then
      show_log "$log_dir/$name.log"
      fail "$name was not ready within $ready_bound_s s ($url); its log is $log_dir/$name.log"
    fi
    sleep 0.2
  done
}

# Ends the script, with the reason, when a process is gone.
require_alive() {
  local name=$1 pid=$2 code=0
  kill -0 "$pid" 2>/dev/null && return
  wait "$pid" 2>/dev/null || code=$?
  show_log "$log_dir/$name.log"
  fail "$name ended by itself (exit code $code); its log is $log_dir/$name.log"
}
