//! The switch's own clock, which a test can shift. Deadlines, retention, the times in the book and the `Date` header
//! follow it.
//!
//! Delays (settlement, retries) run on the database's clock, so that a shift starts and stops nothing. The signed timestamp
//! of a callback is true time; otherwise a shift would only test that the receiver refuses stale callbacks.

use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};

/// Largest shift in either direction, in milliseconds: ten years.
pub(crate) const MAX_OFFSET_MS: i64 = 10 * 365 * 24 * 3_600_000;

/// Now on a clock shifted by `offset_ms`, in whole microseconds, which the database stores without loss.
pub(crate) fn now(offset_ms: i64) -> Timestamp {
    let shifted = earlier(Timestamp::now(), -offset_ms.clamp(-MAX_OFFSET_MS, MAX_OFFSET_MS));
    Timestamp::from_microsecond(shifted.as_microsecond()).unwrap_or(shifted)
}

/// The time `by_ms` before `at`.
pub(crate) fn earlier(at: Timestamp, by_ms: i64) -> Timestamp {
    // Only a span with calendar units can fail, and this one has none.
    at.saturating_sub(SignedDuration::from_millis(by_ms)).unwrap_or(at)
}

/// The value of a `Date` header, in whole seconds.
pub(crate) fn http_date(at: Timestamp) -> Option<String> {
    DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok()
}
