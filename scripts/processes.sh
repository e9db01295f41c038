# shellcheck shell=bash
# Starts, monitors and stops processes. Each runs in its own session, so that Ctrl-C in the terminal reaches only this
# script, which then stops them in order. A process is identified by pid and command line, never by name alone.

foreground_pid= # pid of the long-running foreground command; empty without one

# Replaces the subshell by the command as leader of a new session. macOS has no setsid program; perl replaces it.
exec_in_session() {
  trap - INT QUIT # bash ignores both in background commands, and Go and Rust programs would inherit that
  if command -v setsid >/dev/null; then
    exec setsid "$@"
  fi
  exec perl -e 'use POSIX; POSIX::setsid(); exec { $ARGV[0] } @ARGV or exit 127' -- "$@"
}

# start_process NAME COMMAND..: starts a server in the background; its log is $log_dir/NAME.log.
recorded=0
start_process() {
  local name=$1
  shift
  (exec_in_session "$@") </dev/null >"$log_dir/$name.log" 2>&1 &
  started_pid=$!
  record_resource "$name.process" "$started_pid" "$*"
}

# record_resource NAME.KIND LINE..: records a resource to be released in a file, so that the next run can clean up after a
# killed one.
record_resource() {
  local file
  recorded=$((recorded + 1))
  file=$(printf '%s/%02d-%s' "$run_dir" "$recorded" "$1")
  shift
  printf '%s\n' "$@" >"$file"
}

# Runs a long command in a way that lets traps run at once: bash would delay them until a foreground command ends.
run_in_foreground() {
  local code=0
  (exec_in_session "$@") &
  foreground_pid=$!
  wait "$foreground_pid" || code=$?
  foreground_pid=
  return "$code"
}

# run_logged LOG COMMAND..: the same with the output in a file; shows the latest line as progress, and the log's end on
# failure.
run_logged() {
  local code=0
  run_with_progress "$@" || code=$?
  [ "$code" = 0 ] || print_log_tail "$1"
  return "$code"
}

# run_with_progress LOG COMMAND..: the same, silent on failure.
run_with_progress() {
  local log=$1 code=0 started_s=$SECONDS reported_s=$SECONDS
  shift
  (exec_in_session "$@") >"$log" 2>&1 &
  foreground_pid=$!
  while kill -0 "$foreground_pid" 2>/dev/null; do
    sleep 1
    if [ -t 1 ]; then
      printf '\r\033[K         %4d s  %.60s' "$((SECONDS - started_s))" "$(latest_line "$log")"
    elif [ $((SECONDS - reported_s)) -ge 20 ]; then
      reported_s=$SECONDS
      log_note "$((SECONDS - started_s)) s, line $(($(wc -l <"$log"))): $(latest_line "$log")"
    fi
  done
  [ ! -t 1 ] || printf '\r\033[K'
  wait "$foreground_pid" || code=$?
  foreground_pid=
  return "$code"
}

latest_line() { tail -n 1 "$1" | tr -d '\r' | cut -c 1-60; }

# Prints the command line of a process; nothing if there is no such process.
command_of() {
  if [ -d /proc/self ]; then
    { tr '\0' ' ' <"/proc/$1/cmdline" | sed 's/ $//'; } 2>/dev/null || true
  else
    ps -o command= -p "$1" 2>/dev/null || true
  fi
}

# is_same_process PID COMMAND_LINE: whether the pid still is the recorded process; an interpreter may precede the command.
is_same_process() {
  [ -n "$2" ] || return 1
  case $(command_of "$1") in
    *"$2") return 0 ;;
    *) return 1 ;;
  esac
}

# Whether a process has ended. A zombie still has its pid, but no command line.
is_gone() {
  ! kill -0 "$1" 2>/dev/null || [ -z "$(command_of "$1")" ]
}

# Stops a process by pid: SIGTERM first, then SIGKILL for its whole session.
stop_process() {
  local pid=$1 tries=$((stop_bound_s * 10))
  kill -TERM "$pid" 2>/dev/null || return 0
  until is_gone "$pid"; do
    if [ "$tries" = 0 ]; then
      kill -KILL "$pid" 2>/dev/null || true
      break
    fi
    tries=$((tries - 1))
    sleep 0.1
  done
  kill_children "$pid"
}

# Kills what an ended process has started and left behind, in the session that it led.
kill_children() { kill -KILL -- "-$1" 2>/dev/null || true; }

# Stops the foreground command with its session; a nested ./dev gets time to stop its own processes.
stop_foreground() {
  local tries=300
  [ -n "$foreground_pid" ] || return 0
  kill -TERM -- "-$foreground_pid" 2>/dev/null
  until is_gone "$foreground_pid" || [ "$tries" = 0 ]; do
    tries=$((tries - 1))
    sleep 0.1
  done
  kill -KILL -- "-$foreground_pid" 2>/dev/null
  foreground_pid=
}

# wait_ready NAME URL: waits until the server that was started last reports that it is ready.
wait_ready() {
  local name=$1 url=$2 deadline=$((SECONDS + ready_bound_s))
  until curl -fsS -o /dev/null --max-time 2 --noproxy '*' "$url" 2>/dev/null; do
    require_alive "$name" "$started_pid"
    if [ "$SECONDS" -ge "$deadline" ]; then
      print_log_tail "$log_dir/$name.log"
      fail "$name was not ready within $ready_bound_s s ($url); its log is $log_dir/$name.log"
    fi
    sleep 0.2
  done
}

# require_alive NAME PID: fails if the process has ended.
require_alive() {
  local name=$1 pid=$2 code=0
  kill -0 "$pid" 2>/dev/null && return
  wait "$pid" 2>/dev/null || code=$?
  print_log_tail "$log_dir/$name.log"
  fail "$name ended unexpectedly (exit code $code); its log is $log_dir/$name.log"
}
