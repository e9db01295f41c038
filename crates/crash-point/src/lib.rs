//! Points at which a test ends the process, as a crash at that very instant would: no destructor runs, and nothing is answered. Or the point
//! holds the process, until the test has frozen it there and lets it go on.
//!
//! A point stands where a crash divides what a process does: before an effect, and between an effect and its report. Only builds with
//! debug assertions have points; in a release build the function does nothing.
//!
//! Such a build can also behave as another release, for the test of an upgrade.

use std::path::Path;
use std::time::Duration;

/// Environment variable with the name of the point at which the process ends.
pub const VARIABLE: &str = "CRASH_POINT";

/// Environment variable with the name of the point that holds the process while the file of [`HELD_FILE`] exists.
pub const HELD_POINT: &str = "HELD_POINT";

/// Environment variable with the path of a file.
pub const HELD_FILE: &str = "HELD_FILE";

/// Pause between two looks for the file.
const PAUSE: Duration = Duration::from_millis(10);

/// Environment variable that makes the process another release if it is `1`. The workflows of that one are incompatible with this one's.
pub const OTHER_RELEASE: &str = "OTHER_RELEASE";

/// Whether the process behaves as another release; never in a release build.
#[must_use]
pub fn is_other_release() -> bool {
    cfg!(debug_assertions) && std::env::var_os(OTHER_RELEASE).is_some_and(|value| value == "1")
}

/// Ends the process if [`VARIABLE`] names this point, and holds it if [`HELD_POINT`] does.
#[inline]
pub fn crash_point(name: &str) {
    if cfg!(debug_assertions) {
        let is_named = |variable| std::env::var_os(variable).is_some_and(|chosen| *chosen == *name);
        if is_named(VARIABLE) {
            eprintln!("crash point: {name}");
            std::process::abort();
        }
        if is_named(HELD_POINT) {
            eprintln!("held at: {name}");
            while std::env::var_os(HELD_FILE).is_some_and(|file| Path::new(&file).exists()) {
                std::thread::sleep(PAUSE);
            }
        }
    }
}
