//! The switch's own clock, which a test may shift: deadlines, retention, the
//! times in the book and the `Date` header follow it.
//!
//! Waiting (settlement, retries) does not: it runs on the database's clock. The
//! timestamp under a callback's signature does not either, or shifting this
//! clock would only show that the receiver refuses stale callbacks.

use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};

/// Furthest the clock can be shifted either way, in milliseconds: ten years.
pub(crate) const MAX_OFFSET_MS: i64 = 10 * 365 * 24 * 3_600_000;

/// Now, on a clock shifted by `offset_ms`, in whole microseconds: a finer time
/// would change its value by being stored.
pub(crate) fn now(offset_ms: i64) -> Timestamp {
    let shifted = earlier(Timestamp::now(), -offset_ms.clamp(-MAX_OFFSET_MS, MAX_OFFSET_MS));
    Timestamp::from_microsecond(shifted.as_microsecond()).unwrap_or(shifted)
}

/// The time `by_ms` before `at`.
pub(crate) fn earlier(at: Timestamp, by_ms: i64) -> Timestamp {
    // Saturating: only a span with calendar units can fail, and this is none.
    at.saturating_sub(SignedDuration::from_millis(by_ms)).unwrap_or(at)
}

/// The value of a `Date` header, in whole seconds.
pub(crate) fn http_date(at: Timestamp) -> Option<String> {
    DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok()
}
