//! A circuit breaker for submits alone: a switch that does not answer is left in peace for a moment.
//!
//! It looks before an attempt is recorded, so an attempt it holds back was never made. Cancel, query
//! and recall are never held back: undoing must not wait behind a fault that submits met.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts submits without an answer.
#[derive(Debug)]
pub(crate) struct Breaker {
    failures_max: u32,
    open_for: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Submits in a row that had no answer.
    failures: u32,
    /// Until when nothing passes.
    open_until: Option<Instant>,
}

impl Breaker {
    /// Opens for `open_for` after `failures_max` submits in a row without an answer.
    pub(crate) fn new(failures_max: u32, open_for: Duration) -> Self {
        Self { failures_max, open_for, state: Mutex::default() }
    }

    /// Whether a submit may be made now. After the pause they pass again; the first one without an
    /// answer opens it anew.
    pub(crate) fn passes(&self, now: Instant) -> bool {
        self.lock().open_until.is_none_or(|until| until <= now)
    }

    /// Whether the last submits had no answer, so that the switch is left in peace; until one has an answer.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().open_until.is_some()
    }

    /// Takes note of what a submit brought.
    pub(crate) fn note(&self, answered: bool, now: Instant) {
        let mut state = self.lock();
        if answered {
            *state = State::default();
            return;
        }
        state.failures = state.failures.saturating_add(1);
        if state.failures >= self.failures_max {
            state.open_until = now.checked_add(self.open_for);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_so_many_and_closes_on_an_answer() {
        let breaker = Breaker::new(3, Duration::from_secs(5));
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        for _ in 0..2 {
            breaker.note(false, at(0));
            assert!(breaker.passes(at(0)));
        }
        breaker.note(false, at(0));
        assert!(!breaker.passes(at(0)) && !breaker.passes(at(4)));
        assert!(breaker.passes(at(5)) && breaker.is_open(), "one more try");
        breaker.note(false, at(5));
        assert!(!breaker.passes(at(9)), "without an answer it opens anew at once");
        breaker.note(true, at(10));
        assert!(!breaker.is_open());
        breaker.note(false, at(10));
        assert!(breaker.passes(at(10)), "an answer forgets");
    }
}
