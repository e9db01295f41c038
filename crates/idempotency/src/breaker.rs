//! Circuit breaker of the store (S4.6): while the store does not answer, requests are refused at once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::IdempotencyError;

/// A circuit that opens after consecutive failures and closes with the first answer. While the circuit is open, one
/// request in each pause probes the store.
#[derive(Debug)]
pub struct StoreBreaker {
    failures_max: u32,
    pause: Duration,
    state: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    /// Consecutive requests that the store did not answer.
    failures: u32,
    /// When the next probe is due; `None` while the circuit is closed.
    probe_at: Option<Instant>,
}

impl StoreBreaker {
    /// Opens after `failures_max` (at least 1) consecutive failures, and probes after each `pause`.
    #[must_use]
    pub fn new(failures_max: u32, pause: Duration) -> Self {
        set_gauge(false);
        Self { failures_max: failures_max.max(1), pause, state: Mutex::default() }
    }

    /// Checks whether a request may use the store now.
    ///
    /// # Errors
    /// [`IdempotencyError::Unavailable`] while the circuit is open.
    pub fn check(&self) -> Result<(), IdempotencyError> {
        let mut state = self.lock();
        match state.probe_at {
            Some(at) if Instant::now() < at => Err(IdempotencyError::Unavailable),
            // This request is the probe; others are refused until the next one.
            Some(_) => {
                state.probe_at = Some(Instant::now() + self.pause);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Records the result of using the store.
    pub fn record(&self, error: Option<&IdempotencyError>) {
        let mut state = self.lock();
        if !error.is_some_and(IdempotencyError::is_store_unavailable) {
            if state.probe_at.is_some() {
                tracing::info!(
                    "the idempotency store answered again, so its circuit is closed and requests are accepted"
                );
                set_gauge(false);
            }
            *state = BreakerState::default();
            return;
        }
        state.failures = state.failures.saturating_add(1);
        if state.failures >= self.failures_max {
            if state.probe_at.is_none() {
                tracing::warn!(
                    failures = state.failures,
                    pause_ms = self.pause.as_millis() as u64,
                    "the idempotency store did not answer, so its circuit is open and requests are refused; one request per pause probes the store"
                );
            }
            state.probe_at = Some(Instant::now() + self.pause);
            set_gauge(true);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes whether the circuit is open.
fn set_gauge(is_open: bool) {
    metrics::gauge!("idempotency_circuit_open").set(f64::from(u8::from(is_open)));
}

impl Default for StoreBreaker {
    /// Opens after three consecutive failures and probes after each second.
    fn default() -> Self {
        Self::new(3, Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn unavailable() -> IdempotencyError {
        IdempotencyError::Database(sqlx::Error::PoolTimedOut)
    }

    #[test]
    fn s4_6_idempotency_circuit_opens_after_failures_and_closes_on_an_answer() {
        let breaker = StoreBreaker::new(2, Duration::from_secs(60));
        breaker.record(Some(&unavailable()));
        breaker.record(None);
        breaker.record(Some(&unavailable()));
        assert!(
            breaker.check().is_ok(),
            "expected a closed circuit: an answer came between the two failures"
        );
        breaker.record(Some(&unavailable()));
        assert!(matches!(breaker.check(), Err(IdempotencyError::Unavailable)));
        breaker.record(None);
        assert!(breaker.check().is_ok());
    }

    /// The gauge is set also after the store came back, so that the alert clears.
    #[test]
    fn s4_6_a_gauge_shows_whether_the_idempotency_circuit_is_open() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let is_shown = |value: &str| handle.render().contains(&format!("idempotency_circuit_open {value}\n"));
        metrics::with_local_recorder(&recorder, || {
            let breaker = StoreBreaker::new(2, Duration::from_secs(60));
            assert!(is_shown("0"), "the gauge is missing before the first failure");
            breaker.record(Some(&unavailable()));
            assert!(is_shown("0"));
            breaker.record(Some(&unavailable()));
            assert!(is_shown("1"));
            breaker.record(None);
            assert!(is_shown("0"));
        });
    }

    #[test]
    fn s4_6_an_open_idempotency_circuit_admits_one_probe_per_pause() {
        let breaker = StoreBreaker::new(1, Duration::ZERO);
        breaker.record(Some(&unavailable()));
        assert!(breaker.check().is_ok(), "expected a probe after the pause");

        let breaker = StoreBreaker::new(1, Duration::from_secs(60));
        breaker.record(Some(&unavailable()));
        breaker.lock().probe_at = Some(Instant::now());
        assert!(breaker.check().is_ok(), "expected the first request to probe");
        assert!(breaker.check().is_err(), "expected the second request to be refused during the probe");
    }

    #[test]
    fn a_refusal_by_the_idempotency_store_does_not_open_its_circuit() {
        let breaker = StoreBreaker::new(1, Duration::from_secs(60));
        breaker.record(Some(&IdempotencyError::ClaimLost));
        assert!(breaker.check().is_ok());
    }
}
