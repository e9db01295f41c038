//! Maintains the day partitions of idempotency keys (S3.4, S4.2), releases the claims of processes that are gone (S4.5), and
//! deletes published events after their retention. The API must not wait for any of this.

use std::time::Duration;

use anyhow::{Context as _, Result};
use monitoring::background_task::BackgroundTask;
use postgres_kit::deletion::DELETED_MAX;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::config::BackgroundWorkerOptions;
use crate::periodic::{self, RoundOutcome};

/// Maintains partitions and deletes old events until `stop`. Several processes may: the one that holds the lock
/// works, the others skip the round.
pub(crate) async fn run(pool: &PgPool, options: &BackgroundWorkerOptions, stop: &CancellationToken) {
    let interval = Duration::from_millis(options.partition_maintenance_interval_ms);
    let event_retention = Duration::from_secs(options.event_retention_s);
    periodic::run(BackgroundTask::PartitionMaintenance, interval, stop, async || {
        // Both run each round, whether or not the other one fails.
        let partitions = maintain_partitions(pool).await;
        let events = prune_events(pool, event_retention).await;
        if let (Err(_), Err(error)) = (&partitions, &events) {
            tracing::warn!(
                error = &**error as &dyn std::error::Error,
                "the background task partition_maintenance could not delete old published outbox events; its next round tries again"
            );
        }
        partitions.and(events)
    })
    .await;
}

/// Maintains the partitions in one round; the next round continues after an error; the API creates a missing
/// partition itself.
async fn maintain_partitions(pool: &PgPool) -> Result<()> {
    let kept = idempotency::maintenance::maintain(pool)
        .await
        .context("the partitions of idempotency keys were not maintained")?;
    if kept != idempotency::maintenance::MaintenanceReport::default() {
        let days = kept.partitions;
        tracing::info!(
            created = days.created,
            dropped = days.dropped,
            claims_released = kept.reaped,
            "the background task partition_maintenance maintained the idempotency keys"
        );
    }
    Ok(())
}

async fn prune_events(pool: &PgPool, retention: Duration) -> Result<RoundOutcome> {
    let deleted = outbox::retention::prune_published(pool, retention)
        .await
        .context("published outbox events were not deleted")?;
    if deleted > 0 {
        tracing::info!(
            events = deleted,
            "the background task partition_maintenance deleted published outbox events beyond their retention"
        );
    }
    Ok(if deleted < DELETED_MAX { RoundOutcome::Idle } else { RoundOutcome::MoreWork })
}
