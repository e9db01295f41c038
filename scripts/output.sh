# shellcheck shell=bash
# Output of the scripts: one line per step with the seconds since the start; errors on stderr.

log_step() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }

log_note() { printf '         %s\n' "$*"; }

# Ends the script with one line that says what happened and what to do. Inside $(..) it ends only the subshell.
fail() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

# print_log_tail LOG: prints the end of a log to stderr, without backtraces: a program prints its error before one.
print_log_tail() {
  printf -- '--- last lines of %s:\n' "${1#"$root"/}" >&2
  { awk '/^[Ss]tack backtrace:/ { skips = 1; next } skips && /^ +([0-9]+:|at )/ { next } { skips = 0; print }' "$1" | tail -n 20 >&2; } || true
  printf -- '---\n' >&2
}
