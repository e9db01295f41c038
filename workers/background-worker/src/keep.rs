//! Keeps the table of idempotency keys: days ahead, days over, holders that are gone (S3.4, S4.2, S4.5); and deletes events
//! that were published long ago. Here, since whoever takes requests must not stop for it.

use std::time::Duration;

use monitoring::task::BackgroundTask;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::config::BackgroundWorkerOptions;

/// Runs until `stop`. Several relays may: whoever finds another at it does nothing.
pub(crate) async fn run(pool: &PgPool, options: &BackgroundWorkerOptions, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        let kept = idempotency::maintenance::maintain(pool).await;
        let pruned =
            outbox::keep::prune_published(pool, Duration::from_secs(options.event_retention_s)).await;
        if kept.is_ok() && pruned.is_ok() {
            BackgroundTask::Keep.succeeded();
        }
        match kept {
            Ok(kept) if kept == idempotency::maintenance::MaintenanceReport::default() => {}
            Ok(kept) => {
                let days = kept.partitions;
                tracing::info!(
                    made = days.created,
                    dropped = days.dropped,
                    reaped = kept.reaped,
                    "idempotency keys kept"
                );
            }
            // What was begun is finished the next time; a day that is missing is made by who finds it so.
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "keeping idempotency keys failed");
            }
        }
        match pruned {
            Ok(0) => {}
            Ok(events) => tracing::info!(events, "published events deleted"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "deleting published events failed");
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(Duration::from_millis(options.partition_maintenance_interval_ms)) => {}
        }
    }
}
