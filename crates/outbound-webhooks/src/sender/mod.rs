//! Sends what is due. Any number of senders may run, in any number of processes: each claims rows for the time of a lease,
//! posts outside any transaction, and records what came of it. A sender that dies leaves leases that end; then another one
//! makes those attempts again, under the same ids.
//!
//! | file | question |
//! |---|---|
//! | `claim` | what is due, and who sends it? |
//! | `courier` | one attempt: what is sent, what came back? |
//! | `record` | what does that mean for the delivery and its endpoint? |

mod claim;
mod courier;
mod record;

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::CheckedOutboundWebhooks;
use crate::schedule::Schedule;
use crate::secret::MasterKey;

use self::claim::{Claimed, Room};
use self::courier::Courier;

/// How long attempts under way may go on when the process is to stop. What is cut off is made again when its lease ends.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// Claims, posts and records until it is told to stop.
#[derive(Clone, Debug)]
pub struct Sender(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    courier: Courier,
    schedule: Schedule,
    put_off: Duration,
    disable_after_s: u32,
    lease: Duration,
    slots: usize,
    max_in_flight_per_endpoint: i64,
    max_in_flight_per_tenant: i64,
    poll_interval: Duration,
    kept: Duration,
}

/// The HTTP client could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client for webhooks could not be made")]
pub struct SenderError(#[from] reqwest::Error);

impl Sender {
    /// A sender over a pool of its own, so that no endpoint keeps others from the database; the tables must be migrated.
    ///
    /// # Errors
    /// [`SenderError`].
    pub fn new(
        pool: PgPool,
        master_key: MasterKey,
        options: &CheckedOutboundWebhooks,
    ) -> Result<Self, SenderError> {
        let courier = Courier::new(master_key, options)?;
        Ok(Self(Arc::new(Inner {
            pool,
            courier,
            schedule: options.schedule.clone(),
            put_off: options.put_off,
            disable_after_s: options.disable_after_s,
            lease: options.lease,
            slots: options.max_in_flight,
            max_in_flight_per_endpoint: options.max_in_flight_per_endpoint,
            max_in_flight_per_tenant: options.max_in_flight_per_tenant,
            poll_interval: options.poll_interval,
            kept: options.kept,
        })))
    }

    /// Sends until `stop`; what is under way then may finish within 5 s.
    pub async fn run(&self, stop: &CancellationToken) {
        // An alert watches them: the first would not be seen to have been added.
        for reason in ["endpoint_gone", "failing"] {
            metrics::counter!("outbound_webhook_endpoints_disabled_total", "reason" => reason).increment(0);
        }
        let mut under_way = JoinSet::new();
        while !stop.is_cancelled() {
            while under_way.try_join_next().is_some() {}
            let room = self.0.slots.saturating_sub(under_way.len());
            for claimed in self.claim(room).await {
                let inner = self.0.clone();
                under_way.spawn(async move { inner.carry(claimed).await });
            }
            tokio::select! {
                () = stop.cancelled() => {}
                // There is room again, and maybe more for the same endpoint.
                Some(_) = under_way.join_next() => {}
                () = tokio::time::sleep(self.0.poll_interval) => {}
            }
        }
        let rest = async { while under_way.join_next().await.is_some() {} };
        if tokio::time::timeout(FINISH_WITHIN, rest).await.is_err() {
            tracing::info!("webhook attempts cut off; they are made again when their leases end");
        }
    }

    async fn claim(&self, room: usize) -> Vec<Claimed> {
        let inner = &self.0;
        if room == 0 {
            return Vec::new();
        }
        let room = Room {
            now: i64::try_from(room).unwrap_or(i64::MAX),
            per_endpoint: inner.max_in_flight_per_endpoint,
            per_tenant: inner.max_in_flight_per_tenant,
        };
        match claim::claim(&inner.pool, room, inner.lease, inner.kept).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no webhooks can be claimed");
                Vec::new()
            }
        }
    }
}

impl Inner {
    /// One attempt, from the claim to its record.
    async fn carry(&self, claimed: Claimed) {
        let attempt = self.courier.attempt(&claimed).await;
        let recorded = record::record(self, &claimed, &attempt).await;
        match recorded {
            Ok(outcome) => {
                metrics::counter!("outbound_webhook_attempts_total", "outcome" => outcome.as_str())
                    .increment(1);
                tracing::debug!(
                    endpoint.id = %claimed.endpoint, event.id = claimed.event_id, outcome = outcome.as_str(),
                    "webhook attempt"
                );
            }
            // Its lease ends, and it is made again: the receiver knows the repeat by its id.
            Err(error) => {
                metrics::counter!("outbound_webhook_attempts_total", "outcome" => "not_recorded")
                    .increment(1);
                tracing::warn!(
                    endpoint.id = %claimed.endpoint, event.id = claimed.event_id,
                    error = &error as &dyn std::error::Error,
                    "a webhook attempt is not recorded and is made again"
                );
            }
        }
    }
}
