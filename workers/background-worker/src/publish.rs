//! Publishes events to the broker (S3.5), and measures how many wait. Here, since whoever moves money must not wait for a
//! broker.

use std::time::Duration;

use anyhow::ensure;
use outbox::nats::{Broker, JetStream};
use outbox::{OutboxError, Relay, Watch};
use payment_ledger::events::Consumer;
use sqlx::PgPool;

use crate::config::BackgroundWorkerOptions;

/// Longest pause between two looks (S3.5), in milliseconds.
const PUBLISH_INTERVAL_MAX_MS: u64 = 500;

/// What publishes. The broker need not be there.
///
/// # Errors
/// A setting that is refused.
pub(crate) fn relay(
    pool: &PgPool,
    broker: Broker,
    options: &BackgroundWorkerOptions,
) -> anyhow::Result<Relay<JetStream>> {
    let every_ms = options.publish_interval_ms;
    ensure!(
        (1..=PUBLISH_INTERVAL_MAX_MS).contains(&every_ms),
        "background_worker.publish_interval_ms must be from 1 to {PUBLISH_INTERVAL_MAX_MS}"
    );
    let poll_interval = Duration::from_millis(every_ms);
    let how = outbox::RelayOptions { poll_interval, ..outbox::RelayOptions::default() };
    Ok(Relay::new(pool.clone(), JetStream::new(broker), how))
}

/// A watch over each consumer of events.
pub(crate) fn watches() -> Vec<Watch> {
    Consumer::ALL.iter().map(|consumer| Watch::new(consumer.as_str())).collect()
}

/// Measures what waits to be published, what is parked, and how far behind are those who tell of events.
#[allow(clippy::cast_precision_loss, reason = "gauges are doubles; counts stay far below 2^53")]
pub(crate) async fn measure(pool: &PgPool, watches: &mut [Watch]) -> Result<(), OutboxError> {
    let now = outbox::measure(pool).await?;
    let oldest = Duration::from_millis(now.oldest_ms.unsigned_abs());
    metrics::gauge!("outbox_unpublished").set(now.unpublished as f64);
    metrics::gauge!("outbox_oldest_unpublished_seconds").set(oldest.as_secs_f64());
    metrics::gauge!("outbox_parked").set(now.parked as f64);
    metrics::gauge!("outbox_parked_deliveries").set(now.parked_deliveries as f64);
    for watch in watches {
        let name = watch.consumer();
        let behind = watch.measure(pool).await?;
        let oldest = Duration::from_millis(behind.oldest_ms.unsigned_abs());
        metrics::gauge!("events_unprocessed", "consumer" => name).set(behind.events as f64);
        metrics::gauge!("events_unprocessed_oldest_seconds", "consumer" => name).set(oldest.as_secs_f64());
    }
    Ok(())
}
