//! The switch's clock, as its `Date` headers tell it.
//!
//! Submit's deadline counts on this clock, never on ours: a clock of ours that is wrong by ten
//! minutes moves nothing. The header has whole seconds and is rounded down, so this clock is never
//! ahead of the switch by more than the answer took to arrive.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

/// The last `Date` heard, and when that was on our monotonic clock.
#[derive(Debug, Default)]
pub struct SwitchClock {
    last: Mutex<Option<(Timestamp, Instant)>>,
}

impl SwitchClock {
    /// Hears a `Date` header (RFC 9110). Returns it, or none if it cannot be read.
    pub fn hear(&self, date: &str) -> Option<Timestamp> {
        let heard = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((heard, Instant::now()));
        Some(heard)
    }

    /// The switch's time now: what was last heard and what has passed since. None until something
    /// was heard.
    #[must_use]
    pub fn now(&self) -> Option<Timestamp> {
        let (heard, at) = (*self.last.lock().unwrap_or_else(PoisonError::into_inner))?;
        let passed = SignedDuration::try_from(at.elapsed()).unwrap_or(SignedDuration::MAX);
        heard.saturating_add(passed).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_http_dates_and_runs_on() {
        let clock = SwitchClock::default();
        assert_eq!(clock.now(), None);
        assert_eq!(clock.hear("yesterday"), None);
        assert_eq!(clock.now(), None);
        let heard = clock.hear("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(heard.to_string(), "1994-11-06T08:49:37Z");
        assert!(clock.now().unwrap() >= heard);
    }
}
