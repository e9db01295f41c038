//! The circuit breaker of submits to one switch.
//!
//! The check comes before an attempt is recorded, so a submit that the open circuit holds back is no attempt. Cancel,
//! query and recall are never held back: a compensation must not wait because submits had no answer.
//!
//! A submit has no answer if the connection breaks or the time is up, and if the response is a redirect, 408, 425, 429, 5xx
//! or an answer that is unreadable or about another transfer. A refusal of the transfer is an answer, and so is a refusal
//! of the request (any other 4xx): the fault is ours, and it says nothing about the switch.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A circuit that opens after consecutive submits without an answer.
#[derive(Debug)]
pub(crate) struct CircuitBreaker {
    failures_max: u32,
    open_for: Duration,
    state: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    /// Consecutive submits without an answer.
    failures: u32,
    /// End of the pause while the circuit is open; `None` while it is closed.
    open_until: Option<Instant>,
}

impl CircuitBreaker {
    /// Opens for `open_for` after `failures_max` consecutive submits without an answer.
    pub(crate) fn new(failures_max: u32, open_for: Duration) -> Self {
        Self { failures_max, open_for, state: Mutex::default() }
    }

    /// Whether a submit may be sent now. Submits pass again after the pause; the first one without an answer opens the
    /// circuit again.
    pub(crate) fn permits(&self, now: Instant) -> bool {
        self.lock().open_until.is_none_or(|until| until <= now)
    }

    /// Whether the circuit is open, until a submit has an answer.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().open_until.is_some()
    }

    /// Records whether a submit had an answer.
    pub(crate) fn record(&self, answered: bool, now: Instant) {
        let mut state = self.lock();
        if answered {
            *state = BreakerState::default();
            return;
        }
        state.failures = state.failures.saturating_add(1);
        if state.failures >= self.failures_max {
            state.open_until = now.checked_add(self.open_for);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_circuit_opens_after_failures_and_closes_on_an_answer() {
        let breaker = CircuitBreaker::new(3, Duration::from_secs(5));
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        for _ in 0..2 {
            breaker.record(false, at(0));
            assert!(breaker.permits(at(0)));
        }
        breaker.record(false, at(0));
        assert!(!breaker.permits(at(0)) && !breaker.permits(at(4)));
        assert!(breaker.permits(at(5)) && breaker.is_open(), "expected a probe after the pause");
        breaker.record(false, at(5));
        assert!(!breaker.permits(at(9)), "expected a failed probe to open the circuit again");
        breaker.record(true, at(10));
        assert!(!breaker.is_open());
        breaker.record(false, at(10));
        assert!(breaker.permits(at(10)), "expected an answer to reset the failure count");
    }
}
