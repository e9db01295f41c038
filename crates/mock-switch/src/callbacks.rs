//! The task that tells the bank: signs each waiting callback and repeats it,
//! with the same id and body, until the bank answers 2xx.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use service_kit::signature::{self, ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::book::events::{self, Attempt, Taken};
use crate::switch::Shared;

/// Callbacks on their way at once.
const IN_FLIGHT: usize = 64;
/// Longest attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// For how long one attempt owns its callback: longer than the attempt and its record.
const LEASE: Duration = Duration::from_secs(15);
/// Wait after the first failed attempt; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Longest wait between attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// After so many attempts a callback is given up.
const MAX_ATTEMPTS: i32 = 100;
/// Between two looks for waiting callbacks.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// After the database failed.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// Sends callbacks until told to stop.
pub(crate) struct Sender {
    switch: Shared,
    client: reqwest::Client,
}

impl Sender {
    /// A sender with connections of its own.
    pub(crate) fn new(switch: Shared) -> Result<Self, reqwest::Error> {
        // The client insists on a TLS provider, even for plain http. That one
        // is already there is no failure.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(ATTEMPT_TIMEOUT)
            .redirect(Policy::none())
            // No certificates: a machine without any can still send plain http.
            .tls_certs_only([])
            // The bank's address is meant as it is written.
            .no_proxy()
            .user_agent(format!("mock-switch/{}", switch.config.name))
            .build()?;
        Ok(Self { switch, client })
    }

    /// Runs until told to stop, then lets attempts under way finish.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut under_way = JoinSet::new();
        if let Err(error) = events::release_all(&self.switch.pool).await {
            // Their leases run out by themselves, only later.
            tracing::warn!(error = &error as &dyn std::error::Error, "old leases stay");
        }
        while !stop.is_cancelled() {
            while under_way.try_join_next().is_some() {}
            let pause = self.start_waiting(&mut under_way).await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.switch.call_now.notified() => {}
                Some(_) = under_way.join_next() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        while under_way.join_next().await.is_some() {}
    }

    /// Starts an attempt for each waiting callback there is room for; returns
    /// when to look again.
    async fn start_waiting(&self, under_way: &mut JoinSet<()>) -> Duration {
        let room = IN_FLIGHT.saturating_sub(under_way.len());
        if room == 0 {
            return LOOK_EVERY;
        }
        match events::take(&self.switch.pool, room as i64, LEASE).await {
            Ok(taken) => {
                for callback in taken {
                    under_way.spawn(attempt(self.switch.clone(), self.client.clone(), callback));
                }
                LOOK_EVERY
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "callbacks wait");
                AFTER_FAILURE
            }
        }
    }
}

/// Makes one attempt and records what it showed.
async fn attempt(switch: Shared, client: reqwest::Client, callback: Taken) {
    let started = Instant::now();
    // True time, whatever the switch's own clock shows: see the clock module.
    let timestamp_s = Timestamp::now().as_second();
    let body = callback.body.into_bytes();
    let secret = &switch.config.callback_secret;
    let signed = signature::sign(secret, &callback.event_id, timestamp_s, &body);
    let sent = client
        .post(&switch.config.callback_url)
        .header(CONTENT_TYPE, "application/json")
        .header(ID_HEADER, &callback.event_id)
        .header(TIMESTAMP_HEADER, timestamp_s)
        .header(SIGNATURE_HEADER, signed)
        .body(body)
        .send()
        .await;
    let (status, error) = match sent {
        Ok(answer) if answer.status().is_success() => (Some(answer.status().as_u16()), None),
        Ok(answer) => {
            let status = answer.status().as_u16();
            (Some(status), Some(format!("answered {status}")))
        }
        Err(error) => (None, Some(error.without_url().to_string())),
    };
    let outcome = if error.is_none() { "delivered" } else { "failed" };
    metrics::counter!("mock_switch_callbacks_total", "outcome" => outcome).increment(1);
    tracing::debug!(
        event.id = callback.event_id,
        event.attempt = callback.attempts,
        event.elapsed_ms = started.elapsed().as_millis() as u64,
        outcome,
        "callback"
    );
    let again_after = (callback.attempts < MAX_ATTEMPTS).then(|| wait(callback.attempts));
    let seen = Attempt { status, error, again_after };
    if let Err(error) = events::attempted(&switch.pool, callback.id, &seen).await {
        // Not recorded: it is sent again when the lease runs out, and the id is the same.
        tracing::warn!(error = &error as &dyn std::error::Error, "an attempt is not recorded");
    }
}

/// The wait after so many attempts.
fn wait(attempts: i32) -> Duration {
    let doublings = u32::try_from(attempts - 1).unwrap_or(0).min(16);
    FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        let waits: Vec<_> = (1..=7).map(|attempts| wait(attempts).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(wait(MAX_ATTEMPTS), LONGEST_WAIT);
    }
}
