//! libFuzzer on the target that the variable `FUZZ_TARGET` names. `./dev fuzz` builds and runs it.

#![no_main]
#![allow(unsafe_code, reason = "libFuzzer calls the target by a fixed name")]

use std::sync::LazyLock;

use fuzz_targets::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|target| target.name == name);
    *found.unwrap_or_else(|| panic!("FUZZ_TARGET names no target: {name:?}"))
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    (TARGET.check)(input);
});
