//! The background task that sends callbacks: it signs each one and repeats it, with the same id and body, until the bank
//! answers 2xx.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use webhook_signature::{ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};

use crate::book::callbacks::{self, CallbackAttemptOutcome, ClaimedCallback};
use crate::state::SharedSwitch;

/// In-flight limit of attempts.
const MAX_IN_FLIGHT: usize = 64;
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Lease of a claimed callback: longer than an attempt and its record.
const LEASE: Duration = Duration::from_secs(15);
/// Delay after the first failed attempt; it doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(200);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// A callback is abandoned after this many attempts.
const MAX_ATTEMPTS: i32 = 100;
/// Longest pause: a callback that is due at once wakes the task, which knows when the next one is due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest pause.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Pause after a failure of the database.
const FAILURE_PAUSE: Duration = Duration::from_millis(500);

/// Sends callbacks until the shutdown.
pub(crate) struct CallbackSender {
    switch: SharedSwitch,
    client: reqwest::Client,
}

impl CallbackSender {
    /// A sender with its own HTTP client.
    pub(crate) fn new(switch: SharedSwitch) -> Result<Self, reqwest::Error> {
        // The client requires a TLS provider even for plain HTTP. An installed provider is no failure.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(ATTEMPT_TIMEOUT)
            .redirect(Policy::none())
            // A machine without certificates can still send plain HTTP.
            .tls_certs_only([])
            .no_proxy()
            .user_agent(format!("mock-switch/{}", switch.config.name))
            .build()?;
        Ok(Self { switch, client })
    }

    /// Runs until `stop`, then lets the attempts in flight finish.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut in_flight = JoinSet::new();
        if let Err(error) = callbacks::release_leases(&self.switch.pool).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the mock switch could not release the callback leases of its earlier process; the leases expire by themselves"
            );
        }
        while !stop.is_cancelled() {
            while in_flight.try_join_next().is_some() {}
            let pause = self.start_due(&mut in_flight).await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.switch.callback_due.notified() => {}
                Some(_) = in_flight.join_next() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        while in_flight.join_next().await.is_some() {}
    }

    /// Starts attempts of due callbacks up to the in-flight limit; returns the pause before the next poll.
    async fn start_due(&self, in_flight: &mut JoinSet<()>) -> Duration {
        let capacity = MAX_IN_FLIGHT.saturating_sub(in_flight.len());
        if capacity == 0 {
            return POLL_INTERVAL;
        }
        let pool = &self.switch.pool;
        let started = async {
            for callback in callbacks::claim(pool, capacity as i64, LEASE).await? {
                in_flight.spawn(attempt(self.switch.clone(), self.client.clone(), callback));
            }
            callbacks::next_due(pool).await
        };
        match started.await {
            Ok(next_due) => next_due.unwrap_or(POLL_INTERVAL).clamp(PAUSE_MIN, POLL_INTERVAL),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the mock switch could not claim due callbacks; it tries again"
                );
                FAILURE_PAUSE
            }
        }
    }
}

/// Makes one attempt and records its outcome.
async fn attempt(switch: SharedSwitch, client: reqwest::Client, callback: ClaimedCallback) {
    let started = Instant::now();
    // True time, not the switch's clock: see the clock module.
    let timestamp_s = Timestamp::now().as_second();
    let body = callback.body.into_bytes();
    let secret = &switch.config.callback_secret;
    let signature = webhook_signature::sign(secret, &callback.event_id, timestamp_s, &body);
    let response = client
        .post(&switch.config.callback_url)
        .header(CONTENT_TYPE, "application/json")
        .header(ID_HEADER, &callback.event_id)
        .header(TIMESTAMP_HEADER, timestamp_s)
        .header(SIGNATURE_HEADER, signature)
        .body(body)
        .send()
        .await;
    let (status, error) = match response {
        Ok(response) if response.status().is_success() => (Some(response.status().as_u16()), None),
        Ok(response) => {
            let status = response.status().as_u16();
            (Some(status), Some(format!("answered {status}")))
        }
        Err(error) => (None, Some(error.without_url().to_string())),
    };
    let label = if error.is_none() { "delivered" } else { "failed" };
    metrics::counter!("mock_switch_callbacks_total", "outcome" => label).increment(1);
    let retry_after = (callback.attempts < MAX_ATTEMPTS).then(|| retry_delay(callback.attempts));
    let outcome = CallbackAttemptOutcome { status, error, retry_after };
    match callbacks::record_attempt(&switch.pool, callback.id, &outcome).await {
        Ok(()) => tracing::debug!(
            event.id = callback.event_id,
            event.attempt = callback.attempts,
            event.elapsed_ms = started.elapsed().as_millis() as u64,
            outcome = label,
            "the mock switch recorded an attempt to send a callback"
        ),
        Err(error) => tracing::warn!(
            event.id = callback.event_id,
            error = &error as &dyn std::error::Error,
            "the mock switch could not record an attempt to send a callback; it repeats the attempt with the same id after the lease"
        ),
    }
}

/// The delay after this many attempts.
fn retry_delay(attempts: i32) -> Duration {
    let doublings = u32::try_from(attempts - 1).unwrap_or(0).min(16);
    FIRST_RETRY_DELAY.saturating_mul(1 << doublings).min(MAX_RETRY_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mock_switch_callback_retry_delays_double_up_to_a_bound() {
        let delays: Vec<_> = (1..=7).map(|attempts| retry_delay(attempts).as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(retry_delay(MAX_ATTEMPTS), MAX_RETRY_DELAY);
    }
}
