//! Maintenance of the table: creates partitions ahead, drops expired ones, removes holders whose lease has expired.

use postgres_kit::Pool;

use crate::partition::{self, PartitionChanges};
use crate::{IdempotencyError, token_claim};

/// Changes made by one maintenance run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceReport {
    /// Day partitions created and dropped.
    pub partitions: PartitionChanges,
    /// Holders removed because their lease had expired.
    pub reaped: u64,
}

/// Maintains partitions and removes expired holders. Call it about every minute; any number of processes may, and a process
/// that finds another one at work skips the run.
///
/// # Errors
/// [`IdempotencyError::Database`]; the next run continues where this one stopped.
pub async fn maintain(pool: &Pool) -> Result<MaintenanceReport, IdempotencyError> {
    let partitions = partition::maintain_partitions(pool).await?;
    let reaped = token_claim::reap(pool).await?;
    metrics::counter!("idempotency_partitions_dropped_total").increment(u64::from(partitions.dropped));
    metrics::counter!("idempotency_reaped_total").increment(reaped);
    Ok(MaintenanceReport { partitions, reaped })
}
