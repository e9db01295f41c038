//! Publishes outbox events to the broker (S3.5) and reports how many wait. Steps that move money must not wait for a broker.

use std::time::Duration;

use anyhow::ensure;
use outbox::nats::{Broker, JetStreamPublisher};
use outbox::{ConsumerLagMonitor, OutboxError, Relay};
use payment_ledger::events::Consumer;
use postgres_kit::Pool;

use crate::config::BackgroundWorkerOptions;

/// Longest pause between two polls of the outbox (S3.5), in milliseconds.
const PUBLISH_INTERVAL_MAX_MS: u64 = 500;

/// The outbox relay. It starts without a broker and connects when the broker is available.
///
/// # Errors
/// A refused setting.
pub(crate) fn relay(
    pool: &Pool,
    broker: Broker,
    options: &BackgroundWorkerOptions,
) -> anyhow::Result<Relay<JetStreamPublisher>> {
    let interval_ms = options.publish_interval_ms;
    ensure!(
        (1..=PUBLISH_INTERVAL_MAX_MS).contains(&interval_ms),
        "background_worker.publish_interval_ms must be from 1 to {PUBLISH_INTERVAL_MAX_MS}"
    );
    let poll_interval = Duration::from_millis(interval_ms);
    let relay_options = outbox::RelayOptions { poll_interval, ..outbox::RelayOptions::default() };
    Ok(Relay::new(pool.clone(), JetStreamPublisher::new(broker), relay_options))
}

/// One lag monitor for each consumer of events.
pub(crate) fn lag_monitors() -> Vec<ConsumerLagMonitor> {
    Consumer::ALL.iter().map(|consumer| ConsumerLagMonitor::new(consumer.as_str())).collect()
}

/// Sets the gauges of unpublished events, parked events and messages, and the lag of each consumer.
#[allow(clippy::cast_precision_loss, reason = "gauges are doubles; counts stay far below 2^53")]
pub(crate) async fn set_gauges(
    pool: &Pool,
    lag_monitors: &mut [ConsumerLagMonitor],
) -> Result<(), OutboxError> {
    let backlog = outbox::measure(pool).await?;
    let oldest = Duration::from_millis(backlog.oldest_ms.unsigned_abs());
    metrics::gauge!("outbox_unpublished").set(backlog.unpublished as f64);
    metrics::gauge!("outbox_unpublished_oldest_seconds").set(oldest.as_secs_f64());
    metrics::gauge!("outbox_parked").set(backlog.parked as f64);
    metrics::gauge!("consumer_parked_messages").set(backlog.parked_deliveries as f64);
    for monitor in lag_monitors {
        let name = monitor.consumer();
        let lag = monitor.measure(pool).await?;
        let oldest = Duration::from_millis(lag.oldest_ms.unsigned_abs());
        metrics::gauge!("events_unprocessed", "consumer" => name).set(lag.unconsumed as f64);
        metrics::gauge!("events_unprocessed_oldest_seconds", "consumer" => name).set(oldest.as_secs_f64());
    }
    Ok(())
}
