//! Outbound webhooks: a consumer that writes deliveries and a sender that sends them, over a connection pool of their own.

mod deliveries;

use std::time::Duration;

use outbound_webhooks::{CheckedOutboundWebhooks, DeliverySender, WebhooksError, measure, retention};
use outbox::nats::{Broker, Consumer, ConsumerOptions};
use postgres_kit::Pool;
use tokio_util::sync::CancellationToken;

use self::deliveries::WriteDeliveries;
use crate::prune::prune;

const MEASURE_INTERVAL: Duration = Duration::from_secs(5);
/// Measurements between two log lines about a missing master key.
const LOG_EVERY: u32 = 12;

/// The consumer and the sender of outbound webhooks.
pub(crate) struct Webhooks {
    pool: Pool,
    consumer: Consumer<WriteDeliveries>,
    /// The sender; `None` without a master key: deliveries stay pending.
    sender: Option<DeliverySender>,
    retention: Duration,
}

impl Webhooks {
    /// The consumer and the sender, over a pool of their own. The broker need not be available.
    ///
    /// # Errors
    /// The HTTP client could not be built.
    pub(crate) fn new(
        pool: Pool,
        broker: Broker,
        consumer: ConsumerOptions,
        options: &CheckedOutboundWebhooks,
    ) -> anyhow::Result<Self> {
        let sender = match &options.master_key {
            Some(master_key) => Some(DeliverySender::new(pool.clone(), master_key.clone(), options)?),
            None => None,
        };
        let consumer = Consumer::new(broker, pool.clone(), WriteDeliveries, consumer);
        Ok(Self { pool, consumer, sender, retention: options.retention })
    }

    /// Consumes events and sends webhooks until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let delete = async || retention::prune(&self.pool, self.retention).await;
        let pruning = prune("webhook deliveries", delete, stop);
        tokio::join!(self.consumer.run(stop), self.send(stop), self.measure(stop), pruning);
    }

    async fn send(&self, stop: &CancellationToken) {
        if let Some(sender) = &self.sender {
            sender.run(stop).await;
        }
    }

    async fn measure(&self, stop: &CancellationToken) {
        let mut measurements_until_log = 0_u32;
        while !stop.is_cancelled() {
            match self.update_gauges().await {
                Ok(active) if active > 0 && self.sender.is_none() => {
                    if measurements_until_log == 0 {
                        tracing::error!(
                            endpoints = active,
                            "the notifier sends no outbound webhooks because it has no master key; set outbound_webhooks.master_key (PAYMENTS_OUTBOUND_WEBHOOKS__MASTER_KEY)"
                        );
                        measurements_until_log = LOG_EVERY;
                    }
                    measurements_until_log -= 1;
                }
                Ok(_) => measurements_until_log = 0,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the notifier could not update the gauges of outbound webhooks; it tries again"
                    );
                }
            }
            let _ = stop.run_until_cancelled(tokio::time::sleep(MEASURE_INTERVAL)).await;
        }
    }

    /// Updates the gauges; returns the number of active endpoints.
    #[allow(clippy::cast_precision_loss, reason = "gauges are doubles; counts stay far below 2^53")]
    async fn update_gauges(&self) -> Result<i64, WebhooksError> {
        let backlog = measure(&self.pool).await?;
        let oldest = Duration::from_millis(backlog.oldest_due_ms.unsigned_abs());
        metrics::gauge!("outbound_webhook_deliveries_pending").set(backlog.pending as f64);
        metrics::gauge!("outbound_webhook_deliveries_due").set(backlog.due as f64);
        metrics::gauge!("outbound_webhook_oldest_due_seconds").set(oldest.as_secs_f64());
        metrics::gauge!("outbound_webhook_endpoints_active").set(backlog.active as f64);
        metrics::gauge!("outbound_webhook_endpoints_disabled").set(backlog.disabled as f64);
        Ok(backlog.active)
    }
}
