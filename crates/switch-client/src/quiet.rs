//! A switch that is busy says for how long it wants to be left alone: `Retry-After` of a 429 or 503.
//!
//! It holds for whatever would be asked again, of every payment. Only whole seconds are understood (RFC 9110 has dates
//! too, which would need the switch's clock); what cannot be read is as if it was not said.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Until when the switch wants to be left alone.
#[derive(Debug)]
pub(crate) struct Quiet {
    longest: Duration,
    until: Mutex<Option<Instant>>,
}

impl Quiet {
    /// Obeys for `longest` at a time: a switch that says "tomorrow" by mistake must not stop payments until then.
    pub(crate) fn new(longest: Duration) -> Self {
        Self { longest, until: Mutex::default() }
    }

    /// Hears the header's value.
    pub(crate) fn hear(&self, retry_after: &str, now: Instant) {
        let Ok(seconds) = retry_after.trim().parse() else { return };
        let until = now.checked_add(Duration::from_secs(seconds).min(self.longest));
        let mut known = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *known = until.max(*known);
    }

    /// How long it still wants to be left alone; none when it does not.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let until = (*self.until.lock().unwrap_or_else(PoisonError::into_inner))?;
        until.checked_duration_since(now).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_asks_for_is_obeyed_up_to_the_bound() {
        let quiet = Quiet::new(Duration::from_secs(5));
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        assert_eq!(quiet.left(start), None);
        for unreadable in ["", "soon", "-1", "1.5", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            quiet.hear(unreadable, start);
            assert_eq!(quiet.left(start), None, "{unreadable}");
        }
        quiet.hear("3", start);
        quiet.hear("1", start);
        assert_eq!(quiet.left(at(1)), Some(Duration::from_secs(2)), "the longest holds");
        assert_eq!(quiet.left(at(3)), None);
        quiet.hear("86400", at(10));
        assert_eq!(quiet.left(at(10)), Some(Duration::from_secs(5)));
    }
}
