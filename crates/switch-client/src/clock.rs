//! The switch's clock, estimated from its `Date` headers.
//!
//! The submit deadline counts on this clock, so an error of our own clock has no effect. The header has whole seconds and
//! is rounded down, so the estimate is never ahead of the switch by more than the response took to arrive.
//!
//! Only the form that RFC 9110 requires of senders is read (IMF-fixdate). Any other counts as a missing header: the obsolete
//! forms leave the century or the zone to a guess, and a wrong time would end a deadline that has not passed. A missing
//! time only delays a conclusion. The time itself is believed however far it is from ours.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};

/// The last `Date` header, and when it arrived on our monotonic clock.
#[derive(Debug, Default)]
pub struct SwitchClock {
    last: Mutex<Option<(Timestamp, Instant)>>,
}

impl SwitchClock {
    /// Records a `Date` header and returns its time; `None` if it is not an IMF-fixdate.
    pub fn record(&self, date: &str) -> Option<Timestamp> {
        let time = rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
        // The parser also reads the forms of mail.
        if rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).ok()? != date {
            return None;
        }
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
