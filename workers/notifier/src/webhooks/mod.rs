//! Tells webhook endpoints: a consumer that writes what is to be delivered, and a sender that delivers it. Their connections to
//! the database are their own.
//!
//! | file | question |
//! |---|---|
//! | `take_in` | what does an event become? |

mod take_in;

use std::time::Duration;

use outbound_webhooks::{CheckedOutboundWebhooks, Sender, WebhooksError, keep, measure};
use outbox::nats::{Broker, Consumer, ConsumerOptions};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use self::take_in::WriteDeliveries;
use crate::prune::prune;

/// Pause between two measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
/// Measurements between two complaints that nothing can be sent.
const COMPLAIN_EVERY: u32 = 12;

/// What tells endpoints.
pub(crate) struct Webhooks {
    pool: PgPool,
    consumer: Consumer<WriteDeliveries>,
    /// None without a master key: what is to be delivered waits.
    sender: Option<Sender>,
    kept: Duration,
}

impl Webhooks {
    /// Over a pool of its own. The broker need not be there.
    ///
    /// # Errors
    /// The HTTP client could not be made.
    pub(crate) fn new(
        pool: PgPool,
        broker: Broker,
        how: ConsumerOptions,
        options: &CheckedOutboundWebhooks,
    ) -> anyhow::Result<Self> {
        let sender = match &options.master_key {
            Some(master_key) => Some(Sender::new(pool.clone(), master_key.clone(), options)?),
            None => None,
        };
        let consumer = Consumer::new(broker, pool.clone(), WriteDeliveries, how);
        Ok(Self { pool, consumer, sender, kept: options.kept })
    }

    /// Runs until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let forget = async || keep::prune(&self.pool, self.kept).await;
        let pruning = prune("webhook deliveries", forget, stop);
        tokio::join!(self.consumer.run(stop), self.send(stop), self.measure(stop), pruning);
    }

    async fn send(&self, stop: &CancellationToken) {
        if let Some(sender) = &self.sender {
            sender.run(stop).await;
        }
    }

    async fn measure(&self, stop: &CancellationToken) {
        let mut complains_in = 0_u32;
        while !stop.is_cancelled() {
            match self.show().await {
                Ok(active) if active > 0 && self.sender.is_none() => {
                    if complains_in == 0 {
                        tracing::error!(
                            endpoints = active,
                            "nothing is sent to webhook endpoints: set outbound_webhooks.master_key (PAYMENTS_OUTBOUND_WEBHOOKS__MASTER_KEY)"
                        );
                        complains_in = COMPLAIN_EVERY;
                    }
                    complains_in -= 1;
                }
                Ok(_) => complains_in = 0,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "measuring webhooks failed");
                }
            }
            let _ = stop.run_until_cancelled(tokio::time::sleep(MEASURE_EVERY)).await;
        }
    }

    /// Shows what waits, and says how many endpoints are active.
    #[allow(clippy::cast_precision_loss, reason = "gauges are doubles; counts stay far below 2^53")]
    async fn show(&self) -> Result<i64, WebhooksError> {
        let now = measure(&self.pool).await?;
        let oldest = Duration::from_millis(now.oldest_due_ms.unsigned_abs());
        metrics::gauge!("outbound_webhook_deliveries_pending").set(now.pending as f64);
        metrics::gauge!("outbound_webhook_deliveries_due").set(now.due as f64);
        metrics::gauge!("outbound_webhook_oldest_due_seconds").set(oldest.as_secs_f64());
        metrics::gauge!("outbound_webhook_endpoints_active").set(now.active as f64);
        metrics::gauge!("outbound_webhook_endpoints_disabled").set(now.disabled as f64);
        Ok(now.active)
    }
}
