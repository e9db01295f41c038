//! Sends due deliveries. Any number of senders may run, in any number of processes: each claims rows for a lease, sends
//! outside any transaction, and records the outcome. The leases of a sender that dies expire; another sender then repeats
//! its attempts under the same ids.
//!
//! | file | content |
//! |---|---|
//! | `claim` | claims due deliveries within the in-flight limits |
//! | `http_sender` | one attempt over HTTP |
//! | `record` | records an attempt and its effect on the delivery and the endpoint |

mod claim;
mod http_sender;
mod record;

use std::sync::Arc;
use std::time::Duration;

use crash_point::crash_point;
use postgres_kit::Pool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::CheckedOutboundWebhooks;
use crate::schedule::Schedule;
use crate::secret::MasterKey;

use self::claim::{ClaimedDelivery, InFlightCapacity};
use self::http_sender::HttpSender;

/// Time for attempts in flight to finish at a shutdown. An interrupted attempt is repeated after its lease.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Claims, sends and records deliveries. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DeliverySender(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: Pool,
    http: HttpSender,
    schedule: Schedule,
    postpone: Duration,
    disable_after_s: u32,
    lease: Duration,
    max_in_flight: usize,
    max_in_flight_per_endpoint: i64,
    max_in_flight_per_tenant: i64,
    poll_interval: Duration,
    retention: Duration,
}

/// The HTTP client could not be built.
#[derive(Debug, thiserror::Error)]
#[error(
    "the HTTP client that sends outbound webhooks could not be built; check the section [outbound_webhooks]"
)]
pub struct SenderError(#[from] reqwest::Error);

impl DeliverySender {
    /// A sender over a pool of its own, so that slow endpoints do not use up the connections of others. The tables must
    /// exist.
    ///
    /// # Errors
    /// [`SenderError`].
    pub fn new(
        pool: Pool,
        master_key: MasterKey,
        options: &CheckedOutboundWebhooks,
    ) -> Result<Self, SenderError> {
        let http = HttpSender::new(master_key, options)?;
        Ok(Self(Arc::new(Inner {
            pool,
            http,
            schedule: options.schedule.clone(),
            postpone: options.postpone,
            disable_after_s: options.disable_after_s,
            lease: options.lease,
            max_in_flight: options.max_in_flight,
            max_in_flight_per_endpoint: options.max_in_flight_per_endpoint,
            max_in_flight_per_tenant: options.max_in_flight_per_tenant,
            poll_interval: options.poll_interval,
            retention: options.retention,
        })))
    }

    /// Sends until `stop`; attempts in flight then have 5 s to finish.
    pub async fn run(&self, stop: &CancellationToken) {
        // An alert rule on the counter needs its value before the first increment.
        for reason in ["endpoint_gone", "failing"] {
            metrics::counter!("outbound_webhook_endpoints_disabled_total", "reason" => reason).increment(0);
        }
        let mut in_flight = JoinSet::new();
        while !stop.is_cancelled() {
            while in_flight.try_join_next().is_some() {}
            let capacity = self.0.max_in_flight.saturating_sub(in_flight.len());
            for claimed in self.claim(capacity).await {
                let inner = self.0.clone();
                in_flight.spawn(async move { inner.deliver(claimed).await });
            }
            tokio::select! {
                () = stop.cancelled() => {}
                // There is capacity again, perhaps for another delivery to the same endpoint.
                Some(_) = in_flight.join_next() => {}
                () = tokio::time::sleep(self.0.poll_interval) => {}
            }
        }
        let rest = async { while in_flight.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, rest).await.is_err() {
            tracing::info!(
                "the shutdown interrupted delivery attempts of outbound webhooks; another process repeats them after their leases"
            );
        }
    }

    async fn claim(&self, capacity: usize) -> Vec<ClaimedDelivery> {
        let inner = &self.0;
        if capacity == 0 {
            return Vec::new();
        }
        let capacity = InFlightCapacity {
            available: i64::try_from(capacity).unwrap_or(i64::MAX),
            per_endpoint: inner.max_in_flight_per_endpoint,
            per_tenant: inner.max_in_flight_per_tenant,
        };
        match claim::claim_due(&inner.pool, capacity, inner.lease, inner.retention).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the sender could not claim due deliveries of outbound webhooks; it tries again"
                );
                Vec::new()
            }
        }
    }
}

impl Inner {
    /// One attempt and its record.
    async fn deliver(&self, claimed: ClaimedDelivery) {
        crash_point("before sending a webhook");
        let attempt = self.http.attempt(&claimed).await;
        crash_point("after sending a webhook");
        match record::record(self, &claimed, &attempt).await {
            Ok(outcome) => {
                metrics::counter!("outbound_webhook_attempts_total", "outcome" => outcome.as_str())
                    .increment(1);
                tracing::debug!(
                    endpoint.id = %claimed.endpoint, event.id = claimed.event_id, outcome = outcome.as_str(),
                    "recorded a delivery attempt of an outbound webhook"
                );
            }
            // The receiver recognises the repeat by the event id.
            Err(error) => {
                metrics::counter!("outbound_webhook_attempts_total", "outcome" => "not_recorded")
                    .increment(1);
                tracing::warn!(
                    endpoint.id = %claimed.endpoint, event.id = claimed.event_id,
                    error = &error as &dyn std::error::Error,
                    "the sender could not record a delivery attempt of an outbound webhook; it repeats the attempt after the lease"
                );
            }
        }
    }
}
