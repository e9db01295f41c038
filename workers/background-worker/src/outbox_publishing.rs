//! Publishes outbox events to the broker (S3.5) and reports how many wait. Steps that move money must not wait for a broker.

use std::time::Duration;

use anyhow::ensure;
use outbox::nats::{Broker, JetStream};
use outbox::{OutboxError, Relay, Watch};
use payment_ledger::events::Consumer;
use sqlx::PgPool;

use crate::config::BackgroundWorkerOptions;

/// Longest pause between two polls of the outbox (S3.5), in milliseconds.
const PUBLISH_INTERVAL_MAX_MS: u64 = 500;

/// The outbox relay. It starts without a broker and connects when the broker is available.
///
/// # Errors
/// A refused setting.
pub(crate) fn relay(
    pool: &PgPool,
    broker: Broker,
    options: &BackgroundWorkerOptions,
) -> anyhow::Result<Relay<JetStream>> {
    let interval_ms = options.publish_interval_ms;
    ensure!(
        (1..=PUBLISH_INTERVAL_MAX_MS).contains(&interval_ms),
        "background_worker.publish_interval_ms must be from 1 to {PUBLISH_INTERVAL_MAX_MS}"
    );
    let poll_interval = Duration::from_millis(interval_ms);
    let relay_options = outbox::RelayOptions { poll_interval, ..outbox::RelayOptions::default() };
    Ok(Relay::new(pool.clone(), JetStream::new(broker), relay_options))
}

/// One lag measurement for each consumer of events.
pub(crate) fn watches() -> Vec<Watch> {
    Consumer::ALL.iter().map(|consumer| Watch::new(consumer.as_str())).collect()
}

/// Sets the gauges of unpublished events, parked events and messages, and the lag of each consumer.
#[allow(clippy::cast_precision_loss, reason = "gauges are doubles; counts stay far below 2^53")]
pub(crate) async fn set_gauges(pool: &PgPool, watches: &mut [Watch]) -> Result<(), OutboxError> {
    let waiting = outbox::measure(pool).await?;
    let oldest = Duration::from_millis(waiting.oldest_ms.unsigned_abs());
    metrics::gauge!("outbox_unpublished").set(waiting.unpublished as f64);
    metrics::gauge!("outbox_unpublished_oldest_seconds").set(oldest.as_secs_f64());
    metrics::gauge!("outbox_parked").set(waiting.parked as f64);
    metrics::gauge!("consumer_parked_messages").set(waiting.parked_deliveries as f64);
    for watch in watches {
        let name = watch.consumer();
        let lag = watch.measure(pool).await?;
        let oldest = Duration::from_millis(lag.oldest_ms.unsigned_abs());
        metrics::gauge!("events_unprocessed", "consumer" => name).set(lag.events as f64);
        metrics::gauge!("events_unprocessed_oldest_seconds", "consumer" => name).set(oldest.as_secs_f64());
    }
    Ok(())
}
