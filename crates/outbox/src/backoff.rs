//! The back-off of a relay whose broker does not confirm events.

use std::time::Duration;

/// Events of a probe: enough that a few events that are never confirmed rarely fill it.
const PROBE_EVENTS: i64 = 8;
/// Of so many probes, one reads a full batch, so that events that are never confirmed cannot fill every probe and hold back
/// the events of other keys.
const PROBES_PER_FULL_BATCH: u32 = 8;

/// Counts the rounds in which the broker confirmed nothing. After such a round the relay pauses, whatever wakes it, and then
/// probes the broker with a few events before it reads a batch again: a broker that is down must not cost the database more
/// than one that works.
#[derive(Debug)]
pub(crate) struct Backoff {
    first_pause: Duration,
    longest_pause: Duration,
    /// Consecutive rounds in which the broker confirmed nothing.
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(first_pause: Duration, longest_pause: Duration) -> Self {
        Self { first_pause, longest_pause, failures: 0 }
    }

    /// Whether the next round only probes the broker.
    pub(crate) fn is_probing(&self) -> bool {
        self.failures > 0
    }

    /// Upper bound of events of the next round; `batch` is that of a broker that confirms events.
    pub(crate) fn batch(&self, batch: i64) -> i64 {
        if self.failures.is_multiple_of(PROBES_PER_FULL_BATCH) { batch } else { batch.min(PROBE_EVENTS) }
    }

    /// Pause before the next round.
    pub(crate) fn pause(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        self.first_pause.saturating_mul(2_u32.saturating_pow(doublings)).min(self.longest_pause)
    }

    /// The broker confirmed nothing.
    pub(crate) fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// The broker answered.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outbox_backoff_doubles_up_to_its_bound_and_ends_at_an_answer() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(5_000));
        assert_eq!((backoff.is_probing(), backoff.batch(256)), (false, 256));
        let mut rounds = Vec::new();
        for _ in 0..9 {
            backoff.fail();
            rounds.push((backoff.pause(), backoff.batch(256)));
        }
        let pauses = [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000].map(ms);
        let batches = [8, 8, 8, 8, 8, 8, 8, 256, 8];
        assert_eq!(rounds, pauses.into_iter().zip(batches).collect::<Vec<_>>());
        assert_eq!(backoff.batch(3), 3, "expected no probe larger than a batch");
        backoff.reset();
        assert_eq!((backoff.is_probing(), backoff.batch(256)), (false, 256));
    }
}
