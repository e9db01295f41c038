//! Points at which a test ends the process, as a crash at that very instant would: no destructor runs, and nothing is answered.
//!
//! A point stands where a crash divides what a process does: before an effect, and between an effect and its report. Only builds with
//! debug assertions have points; in a release build the function does nothing.
//!
//! Such a build can also behave as another release, for the test of an upgrade.

/// Environment variable with the name of the point at which the process ends.
pub const VARIABLE: &str = "CRASH_POINT";

/// Environment variable that makes the process another release if it is `1`. The workflows of that one are incompatible with this one's.
pub const OTHER_RELEASE: &str = "OTHER_RELEASE";

/// Whether the process behaves as another release; never in a release build.
#[must_use]
pub fn is_other_release() -> bool {
    cfg!(debug_assertions) && std::env::var_os(OTHER_RELEASE).is_some_and(|value| value == "1")
}

/// Ends the process if [`VARIABLE`] names this point.
#[inline]
pub fn crash_point(name: &str) {
    if cfg!(debug_assertions) && std::env::var_os(VARIABLE).is_some_and(|chosen| *chosen == *name) {
        eprintln!("crash point: {name}");
        std::process::abort();
    }
}
