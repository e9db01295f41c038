//! Publishes outbox events to the broker (S3.5) and reports how many wait. Steps that move money must not wait for a broker.

use std::time::Duration;

use anyhow::ensure;
use monitoring::background_task::BackgroundTask;
use outbox::nats::{Broker, JetStream};
use outbox::{Mender, MenderOptions, OutboxError, Relay, Watch};
use payment_ledger::events::Consumer;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

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

/// Has published again what the broker has lost, until `stop`. Several relays may.
pub(crate) async fn mend(
    pool: &PgPool,
    broker: &Broker,
    options: &BackgroundWorkerOptions,
    stop: &CancellationToken,
) {
    let mut menders: Vec<Mender> = Consumer::ALL
        .iter()
        .map(|consumer| Mender::new(consumer.as_str(), MenderOptions::default()))
        .collect();
    while !stop.is_cancelled() {
        let (mut is_whole, mut is_known) = (true, true);
        for mender in &mut menders {
            match mender.mend(pool, broker).await {
                Ok(mended) => {
                    is_whole &= mended.is_whole;
                    metrics::counter!("outbox_lost_total").increment(mended.events);
                    if mended.events > 0 {
                        let events = mended.events;
                        tracing::warn!(events, "the broker has lost events, which are published again");
                    }
                }
                // A broker that is away will be asked again.
                Err(error) => {
                    is_known = false;
                    tracing::warn!(error = &error as &dyn std::error::Error, "what is lost is not known");
                }
            }
        }
        if is_known && !is_whole {
            continue;
        }
        if is_known {
            BackgroundTask::Mend.record_success();
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(Duration::from_millis(options.mend_every_ms)) => {}
        }
    }
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
