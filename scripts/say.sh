# shellcheck shell=bash
# How the script speaks: one line per step with the seconds since its start, errors on stderr.

step() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }

note() { printf '         %s\n' "$*"; }

# Ends the script with one line that says what to do. Inside $(..) it ends only the subshell.
fail() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

# The end of a log, so that the cause is on the screen and not only in a file.
show_log() {
  printf -- '--- last lines of %s\n' "${1#"$root"/}" >&2
  tail -n 20 "$1" >&2 || true
  printf -- '---\n' >&2
}
