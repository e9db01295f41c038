//! Delays between attempts.

use std::time::Duration;

/// The jitter is at most the delay divided by this.
const JITTER_DIVISOR: u32 = 5;

/// The delays between attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pauses: Vec<Duration>,
    retry_after_max: Duration,
}

impl Schedule {
    /// `pauses` are the delays before the second, third and further attempts. An endpoint's `Retry-After` is obeyed up to
    /// `retry_after_max`.
    #[must_use]
    pub fn new(pauses: Vec<Duration>, retry_after_max: Duration) -> Self {
        Self { pauses, retry_after_max }
    }

    /// The delay after this many failed attempts, from 1; `None` after the last attempt. `random` is any random number; the
    /// jitter spreads attempts that failed together. A longer `Retry-After` takes precedence.
    #[must_use]
    pub fn delay(&self, failed: usize, random: u32, retry_after: Option<Duration>) -> Option<Duration> {
        let delay = add_jitter(*self.pauses.get(failed.checked_sub(1)?)?, random);
        Some(delay.max(retry_after.unwrap_or_default().min(self.retry_after_max)))
    }

    /// The longest possible sum of all delays, with jitter and `Retry-After`.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.pauses
            .iter()
            .map(|pause| pause.saturating_add(*pause / JITTER_DIVISOR).max(self.retry_after_max))
            .fold(Duration::ZERO, Duration::saturating_add)
    }
}

/// Adds a jitter of at most a fifth; `random` is any random number.
pub(crate) fn add_jitter(delay: Duration, random: u32) -> Duration {
    let jitter_max = delay / JITTER_DIVISOR;
    let range_ms = u64::try_from(jitter_max.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
    delay.saturating_add(Duration::from_millis(u64::from(random) % range_ms))
}

/// Parses a `Retry-After` in whole seconds; `None` for any other value. A date would need the endpoint's clock.
#[must_use]
pub fn retry_after(header: &str) -> Option<Duration> {
    header.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn webhook_retry_delays_follow_the_schedule_and_then_end() {
        let schedule = crate::OutboundWebhooksOptions::default().check().unwrap().schedule;
        let hours = |h: u64| S(h * 3_600);
        let expected =
            [S(5), S(300), S(1_800), hours(2), hours(5), hours(10), hours(14), hours(20), hours(24)];
        for (n, pause) in expected.into_iter().enumerate() {
            assert_eq!(schedule.delay(n + 1, 0, None), Some(pause), "after {} failed attempts", n + 1);
            for random in [1, 4_711, u32::MAX] {
                let with_jitter = schedule.delay(n + 1, random, None).unwrap();
                assert!(
                    pause < with_jitter && with_jitter <= pause + pause / 5,
                    "{with_jitter:?} after {pause:?}"
                );
            }
        }
        assert_eq!(schedule.delay(10, 0, None), None);
        assert_eq!(schedule.delay(10, 0, Some(S(1))), None, "expected Retry-After not to add an attempt");
        assert_eq!(schedule.delay(0, 0, None), None);
    }

    #[test]
    fn retry_after_of_a_webhook_endpoint_is_obeyed_up_to_its_maximum() {
        let schedule = Schedule::new(vec![S(60)], S(600));
        for (retry_after_s, delay_s) in [(0, 60), (59, 60), (61, 61), (600, 600), (601, 600), (u64::MAX, 600)]
        {
            assert_eq!(schedule.delay(1, 0, Some(S(retry_after_s))), Some(S(delay_s)), "{retry_after_s}");
        }
        assert_eq!(retry_after(" 7 "), Some(S(7)));
        for unreadable in ["", "soon", "-1", "1.5", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            assert_eq!(retry_after(unreadable), None, "{unreadable}");
        }
    }
}
