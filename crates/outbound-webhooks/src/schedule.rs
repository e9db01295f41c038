//! When an attempt that was no success is made again.

use std::time::Duration;

/// How much longer a pause may be by chance: a part of this size.
const CHANCE_PART: u32 = 5;

/// The pauses between attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pauses: Vec<Duration>,
    retry_after_max: Duration,
}

impl Schedule {
    /// These pauses; an endpoint's own wish is obeyed up to `retry_after_max`.
    #[must_use]
    pub fn new(pauses: Vec<Duration>, retry_after_max: Duration) -> Self {
        Self { pauses, retry_after_max }
    }

    /// The pause after so many attempts that failed, 1 or more; none when that was the last one. `chance` is any random number:
    /// what failed together shall not come again together. The endpoint's own wish counts where it is longer.
    #[must_use]
    pub fn pause(&self, failed: usize, chance: u32, wish: Option<Duration>) -> Option<Duration> {
        let pause = longer_by_chance(*self.pauses.get(failed.checked_sub(1)?)?, chance);
        Some(pause.max(wish.unwrap_or_default().min(self.retry_after_max)))
    }

    /// All pauses together, as long as chance and the endpoint's wishes can make them.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.pauses
            .iter()
            .map(|pause| pause.saturating_add(*pause / CHANCE_PART).max(self.retry_after_max))
            .fold(Duration::ZERO, Duration::saturating_add)
    }
}

/// A pause, longer by a fifth at most; `chance` is any random number.
pub(crate) fn longer_by_chance(pause: Duration, chance: u32) -> Duration {
    let longer = pause / CHANCE_PART;
    let longer_ms = u64::try_from(longer.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
    pause.saturating_add(Duration::from_millis(u64::from(chance) % longer_ms))
}

/// Reads a `Retry-After` in whole seconds. A date would need the other's clock; what cannot be read is as if it was not said.
#[must_use]
pub fn retry_after(header: &str) -> Option<Duration> {
    header.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn pauses_come_in_their_order_and_end() {
        let schedule = crate::OutboundWebhooksOptions::default().check().unwrap().schedule;
        let hours = |h: u64| S(h * 3_600);
        let expected =
            [S(5), S(300), S(1_800), hours(2), hours(5), hours(10), hours(14), hours(20), hours(24)];
        for (n, pause) in expected.into_iter().enumerate() {
            assert_eq!(schedule.pause(n + 1, 0, None), Some(pause), "after {} that failed", n + 1);
            for chance in [1, 4_711, u32::MAX] {
                let by_chance = schedule.pause(n + 1, chance, None).unwrap();
                assert!(pause < by_chance && by_chance <= pause + pause / 5, "{by_chance:?} after {pause:?}");
            }
        }
        assert_eq!(schedule.pause(10, 0, None), None);
        assert_eq!(schedule.pause(10, 0, Some(S(1))), None, "a wish makes no further attempt");
        assert_eq!(schedule.pause(0, 0, None), None);
    }

    #[test]
    fn a_wish_is_heard_within_bounds() {
        let schedule = Schedule::new(vec![S(60)], S(600));
        for (wish, pause) in [(0, 60), (59, 60), (61, 61), (600, 600), (601, 600), (u64::MAX, 600)] {
            assert_eq!(schedule.pause(1, 0, Some(S(wish))), Some(S(pause)), "{wish}");
        }
        assert_eq!(retry_after(" 7 "), Some(S(7)));
        for unreadable in ["", "soon", "-1", "1.5", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            assert_eq!(retry_after(unreadable), None, "{unreadable}");
        }
    }
}
