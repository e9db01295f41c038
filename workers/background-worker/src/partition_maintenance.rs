//! Maintains the day partitions of idempotency keys (S3.4, S4.2), releases the claims of processes that are gone (S4.5), deletes
//! published events after their retention, and erases the personal fields that operators had erased. The API must not wait for any of this.

use std::time::Duration;

use anyhow::{Context as _, Result};
use monitoring::background_task::BackgroundTask;
use payment_ledger::Ledger;
use payment_ledger::operator::erasure::ErasureStep;
use postgres_kit::Pool;
use postgres_kit::deletion::DELETED_MAX;
use tokio_util::sync::CancellationToken;

use crate::config::BackgroundWorkerOptions;
use crate::periodic::{self, RoundOutcome};

/// Maintains partitions and deletes old events until `stop`. Several processes may: the one that holds the lock
/// works, the others skip the round.
/// A payment that ended `erase_after` ago may be erased.
pub(crate) async fn run(
    ledger: &Ledger,
    options: &BackgroundWorkerOptions,
    erase_after: Duration,
    stop: &CancellationToken,
) {
    let pool = ledger.pool();
    let interval = Duration::from_millis(options.partition_maintenance_interval_ms);
    let event_retention = Duration::from_secs(options.event_retention_s);
    periodic::run(BackgroundTask::PartitionMaintenance, interval, stop, async || {
        // Each runs in each round, whether or not another one fails.
        let partitions = maintain_partitions(pool).await.map(|()| RoundOutcome::Idle);
        let events = prune_events(pool, event_retention).await;
        let erased = erase(ledger, erase_after).await;
        let mut outcome = Ok(RoundOutcome::Idle);
        for part in [partitions, events, erased] {
            outcome = match (outcome, part) {
                (Err(error), Err(other)) => {
                    // The round reports one.
                    tracing::warn!(
                        error = &*other as &dyn std::error::Error,
                        "a part of the background task partition_maintenance failed, too; its next round tries again"
                    );
                    Err(error)
                }
                (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
                (Ok(RoundOutcome::Idle), Ok(part)) => Ok(part),
                (Ok(RoundOutcome::MoreWork), Ok(_)) => Ok(RoundOutcome::MoreWork),
            };
        }
        outcome
    })
    .await;
}

/// Maintains the partitions in one round; the next round continues after an error; the API creates a missing
/// partition itself.
async fn maintain_partitions(pool: &Pool) -> Result<()> {
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

/// Goes on with an erasure that operators have begun.
async fn erase(ledger: &Ledger, erase_after: Duration) -> Result<RoundOutcome> {
    let step = ledger.go_on_with_erasure(erase_after).await.context("no personal fields were erased")?;
    if let Some(ErasureStep::Failed { account, payment, reason }) = &step {
        tracing::error!(
            account,
            payment.id = payment.as_deref(),
            reason,
            "the personal fields of a payment were not erased; it is tried again an hour later"
        );
    }
    Ok(if step.is_some() { RoundOutcome::MoreWork } else { RoundOutcome::Idle })
}

async fn prune_events(pool: &Pool, retention: Duration) -> Result<RoundOutcome> {
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
