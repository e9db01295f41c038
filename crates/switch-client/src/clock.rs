//! The switch's clock, estimated from its `Date` headers.
//!
//! The submit deadline counts on this clock, so an error of our own clock has no effect. The header has whole seconds and
//! is rounded down, so the estimate is never ahead of the switch by more than the response took to arrive.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

/// The last `Date` header, and when it arrived on our monotonic clock.
#[derive(Debug, Default)]
pub struct SwitchClock {
    last: Mutex<Option<(Timestamp, Instant)>>,
}

impl SwitchClock {
    /// Records a `Date` header (RFC 9110) and returns its time; `None` if it is unreadable.
    pub fn record(&self, date: &str) -> Option<Timestamp> {
        let time = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((time, Instant::now()));
        Some(time)
    }

    /// The switch's time now: the last header plus the time since it arrived. `None` before the first header.
    #[must_use]
    pub fn now(&self) -> Option<Timestamp> {
        let (time, arrived) = (*self.last.lock().unwrap_or_else(PoisonError::into_inner))?;
        let elapsed = SignedDuration::try_from(arrived.elapsed()).unwrap_or(SignedDuration::MAX);
        time.saturating_add(elapsed).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_clock_reads_http_dates_and_advances() {
        let clock = SwitchClock::default();
        assert_eq!(clock.now(), None);
        assert_eq!(clock.record("yesterday"), None);
        assert_eq!(clock.now(), None);
        let time = clock.record("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(time.to_string(), "1994-11-06T08:49:37Z");
        assert!(clock.now().unwrap() >= time);
    }
}
