# shellcheck shell=bash
# `./dev fuzz`: libFuzzer on the targets of fuzz/, with coverage; inputs that reach new code are kept in fuzz/corpus, without those that
# reach nothing new. `./dev test` runs the kept inputs. The stable compiler suffices: coverage is an option of its code generator.

fuzz() {
  local seconds=60 targets=() target corpus program failed=() host found
  while [ $# -gt 0 ]; do
    case $1 in
      --seconds)
        seconds=${2:-}
        shift 2 || fail "a value is missing"
        ;;
      -*) fail "fuzz takes --seconds N and names of targets, not '$1'" ;;
      *)
        case $1 in '' | .* | */*) false ;; *) [ -d "fuzz/corpus/$1" ] ;; esac || fail "there is no target '$1'; the targets are: $(ls fuzz/corpus | tr '\n' ' ')"
        targets+=("$1")
        shift
        ;;
    esac
  done
  case $seconds in [1-9] | [1-9][0-9] | [1-9][0-9][0-9] | [1-9][0-9][0-9][0-9]) ;; *) fail "--seconds takes a whole number from 1 to 9999, not '$seconds'" ;; esac
  [ ${#targets[@]} -gt 0 ] || for target in fuzz/corpus/*/; do
    targets+=("$(basename "$target")")
  done
  start_run fuzz
  install_tools
  has_command c++ || install_packages g++
  has_command c++ || fail "a C++ compiler is missing: libFuzzer is written in C++"
  host=$(rustc -vV | sed -n 's/^host: //p')
  log_step "building the targets with coverage; the first time takes some minutes"
  # For the host by name, so that build scripts and macros are compiled without counters.
  CARGO_TARGET_DIR=$dev_dir/fuzz/target CARGO_INCREMENTAL=0 \
    RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1" \
    run_logged "$log_dir/build.log" cargo build --release -p fuzz-targets --features libfuzzer --bin fuzz --target "$host" ||
    fail "the targets do not build; see the log above"
  program=$dev_dir/fuzz/target/$host/release/fuzz
  for target in "${targets[@]}"; do
    corpus=$dev_dir/fuzz/corpus/$target
    mkdir -p "$corpus"
    log_step "fuzzing $target for $seconds s"
    if ! FUZZ_TARGET=$target run_in_foreground "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 \
      -artifact_prefix="$log_dir/$target-" -print_final_stats=1 "$corpus" "fuzz/corpus/$target" >"$log_dir/$target.log" 2>&1; then
      failed+=("$target")
      print_log_tail "$log_dir/$target.log"
      continue
    fi
    found=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log_dir/$target.log")
    # The fewest inputs that reach every place are kept.
    FUZZ_TARGET=$target run_in_foreground "$program" -set_cover_merge=1 -max_len=4096 "fuzz/corpus/$target" "$corpus" >"$log_dir/$target-merge.log" 2>&1 ||
      fail_with_log "$target-merge" "the inputs of $target could not be merged"
    log_step "$target: $found inputs, $(grep -o 'cov: [0-9]*' "$log_dir/$target.log" | tail -1), $(find "fuzz/corpus/$target" -type f | wc -l) kept"
  done
  [ ${#failed[@]} = 0 ] || fail "a property does not hold: ${failed[*]}; the inputs are in ${log_dir#"$root"/}"
}
