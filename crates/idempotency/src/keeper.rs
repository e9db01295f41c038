//! What keeps the table: days ahead, days over, holders that are gone.

use sqlx::PgPool;

use crate::partition::{self, Days};
use crate::{IdempotencyError, outside};

/// What was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Day partitions made and dropped.
    pub days: Days,
    /// Holders reaped.
    pub reaped: u64,
}

/// Makes and drops days, and reaps. Call it every minute or so from any number of processes: whoever finds another at
/// it does nothing.
///
/// # Errors
/// [`IdempotencyError::Database`]; the next call goes on where this one stopped.
pub async fn keep(pool: &PgPool) -> Result<Kept, IdempotencyError> {
    let days = partition::keep_days(pool).await?;
    let reaped = outside::reap(pool).await?;
    metrics::counter!("idempotency_partitions_dropped_total").increment(u64::from(days.dropped));
    metrics::counter!("idempotency_reaped_total").increment(reaped);
    Ok(Kept { days, reaped })
}
