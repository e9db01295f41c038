//! The pause that a busy switch requires: `Retry-After` of a 429 or 503.
//!
//! The pause applies to every payment at the switch. Only whole seconds are read (RFC 9110 also permits dates, which
//! would need the switch's clock); an unreadable value is ignored. Of several headers the longest pause applies.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The end of the pause that the switch requires.
#[derive(Debug)]
pub(crate) struct RetryAfter {
    longest: Duration,
    until: Mutex<Option<Instant>>,
}

impl RetryAfter {
    /// Bounds each pause by `longest`, so that a mistaken value such as a day does not stop payments for that long.
    pub(crate) fn new(longest: Duration) -> Self {
        Self { longest, until: Mutex::default() }
    }

    /// Records the header's value. The pause that ends last applies.
    pub(crate) fn record(&self, header: &str, now: Instant) {
        let digits = header.trim();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return;
        }
        // More seconds than the type can hold are more than the bound.
        let pause = digits.parse().map_or(Duration::MAX, Duration::from_secs);
        let until = now.checked_add(pause.min(self.longest));
        let mut recorded = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *recorded = until.max(*recorded);
    }

    /// The rest of the pause; `None` if no pause is in effect.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        let until = (*self.until.lock().unwrap_or_else(PoisonError::into_inner))?;
        until.checked_duration_since(now).filter(|remaining| !remaining.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_of_the_switch_is_obeyed_up_to_a_bound() {
        let retry_after = RetryAfter::new(Duration::from_secs(5));
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        assert_eq!(retry_after.remaining(start), None);
        for unreadable in ["", "soon", "-1", "1.5", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            retry_after.record(unreadable, start);
            assert_eq!(retry_after.remaining(start), None, "{unreadable}");
        }
        retry_after.record("3", start);
        retry_after.record("1", start);
        assert_eq!(
            retry_after.remaining(at(1)),
            Some(Duration::from_secs(2)),
            "expected the longest pause to apply"
        );
        assert_eq!(retry_after.remaining(at(3)), None);
        retry_after.record("86400", at(10));
        assert_eq!(retry_after.remaining(at(10)), Some(Duration::from_secs(5)));
    }
}
