# shellcheck shell=bash
# Output of the scripts: one line per step with the seconds since the start; errors on stderr.

log_step() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }

log_note() { printf '         %s\n' "$*"; }

# Ends the script with one line that says what happened and what to do. Inside $(..) it ends only the subshell.
fail() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

# print_log_tail LOG: prints the end of a log to stderr.
print_log_tail() {
  printf -- '--- last lines of %s:\n' "${1#"$root"/}" >&2
  tail -n 20 "$1" >&2 || true
  printf -- '---\n' >&2
}
