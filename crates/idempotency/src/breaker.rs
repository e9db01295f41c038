//! Leaves a store in peace that does not answer (S4.6): requests are told so at once instead of waiting for it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::IdempotencyError;

/// Opens after failures in a row, closes with the first answer. While open, one request in each pause is let through
/// to look.
#[derive(Debug)]
pub struct Breaker {
    failures_max: u32,
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// When the next look is due, while open.
    look_at: Option<Instant>,
}

impl Breaker {
    /// Opens after `failures_max` (at least 1) failures in a row, and looks again after each `pause`.
    #[must_use]
    pub fn new(failures_max: u32, pause: Duration) -> Self {
        show(false);
        Self { failures_max: failures_max.max(1), pause, state: Mutex::default() }
    }

    /// Whether a request may go to the store now.
    ///
    /// # Errors
    /// [`IdempotencyError::Unavailable`] while open.
    pub fn check(&self) -> Result<(), IdempotencyError> {
        let mut state = self.lock();
        match state.look_at {
            Some(at) if Instant::now() < at => Err(IdempotencyError::Unavailable),
            // This one looks; the others wait for what it finds.
            Some(_) => {
                state.look_at = Some(Instant::now() + self.pause);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Notes what came of asking the store.
    pub fn note(&self, error: Option<&IdempotencyError>) {
        let mut state = self.lock();
        if !error.is_some_and(IdempotencyError::is_store_lost) {
            if state.look_at.is_some() {
                tracing::info!("the idempotency store answers again");
                show(false);
            }
            *state = State::default();
            return;
        }
        state.failures = state.failures.saturating_add(1);
        if state.failures >= self.failures_max {
            if state.look_at.is_none() {
                tracing::warn!(failures = state.failures, "the idempotency store is left in peace");
            }
            state.look_at = Some(Instant::now() + self.pause);
            show(true);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows whether the store is left in peace.
fn show(is_open: bool) {
    metrics::gauge!("idempotency_circuit_open").set(f64::from(u8::from(is_open)));
}

impl Default for Breaker {
    /// Three failures, one second.
    fn default() -> Self {
        Self::new(3, Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn lost() -> IdempotencyError {
        IdempotencyError::Database(sqlx::Error::PoolTimedOut)
    }

    #[test]
    fn s4_6_opens_after_failures_in_a_row_and_closes_with_an_answer() {
        let breaker = Breaker::new(2, Duration::from_secs(60));
        breaker.note(Some(&lost()));
        breaker.note(None);
        breaker.note(Some(&lost()));
        assert!(breaker.check().is_ok(), "an answer between two failures");
        breaker.note(Some(&lost()));
        assert!(matches!(breaker.check(), Err(IdempotencyError::Unavailable)));
        breaker.note(None);
        assert!(breaker.check().is_ok());
    }

    /// Also after the store came back: an alert that never clears is soon ignored.
    #[test]
    fn s4_6_the_gauge_says_whether_it_is_open() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let shown = recorder.handle();
        let says = |value: &str| shown.render().contains(&format!("idempotency_circuit_open {value}\n"));
        metrics::with_local_recorder(&recorder, || {
            let breaker = Breaker::new(2, Duration::from_secs(60));
            assert!(says("0"), "there from the beginning");
            breaker.note(Some(&lost()));
            assert!(says("0"));
            breaker.note(Some(&lost()));
            assert!(says("1"));
            breaker.note(None);
            assert!(says("0"));
        });
    }

    #[test]
    fn s4_6_one_request_looks_while_it_is_open() {
        let breaker = Breaker::new(1, Duration::ZERO);
        breaker.note(Some(&lost()));
        assert!(breaker.check().is_ok(), "the pause is over");

        let breaker = Breaker::new(1, Duration::from_secs(60));
        breaker.note(Some(&lost()));
        breaker.lock().look_at = Some(Instant::now());
        assert!(breaker.check().is_ok(), "the first one looks");
        assert!(breaker.check().is_err(), "the next one waits for what it finds");
    }

    #[test]
    fn what_the_store_refuses_is_an_answer() {
        let breaker = Breaker::new(1, Duration::from_secs(60));
        breaker.note(Some(&IdempotencyError::Overtaken));
        assert!(breaker.check().is_ok());
    }
}
