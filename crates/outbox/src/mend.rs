//! Has told again what the broker has lost: the rows are the truth, and the broker is a way.

use std::time::Duration;

use sqlx::PgPool;

use crate::nats::{Broker, BrokerError};
use crate::{OutboxError, Watch};

/// Events of one look: the oldest that were not taken in.
const LOOK: i64 = 256;

/// Why it is not known what the broker has lost. Nothing was done; the next look finds it.
#[derive(Debug, thiserror::Error)]
pub enum MendError {
    /// The database.
    #[error(transparent)]
    Database(#[from] OutboxError),
    /// The broker.
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

/// Has published again what a consumer was not told and never would be: it did not take the event in, which was published longer
/// than `after` ago, and the broker has the event no more. Says how many events. Looks at the oldest of them; when those are
/// told, the next.
///
/// # Errors
/// [`MendError`].
pub async fn mend(
    pool: &PgPool,
    broker: &Broker,
    watch: &mut Watch,
    after: Duration,
) -> Result<u64, MendError> {
    if watch.measure(pool).await?.events == 0 {
        return Ok(0);
    }
    let missed = watch.missed(pool, after, LOOK).await?;
    let lost = broker.lost(watch.consumer(), missed).await?;
    let positions: Vec<i64> = lost.iter().map(|event| event.position).collect();
    Ok(publish_again(pool, &positions, after).await?)
}

/// Marks events as not published. What somebody else had published again meanwhile is left alone.
async fn publish_again(pool: &PgPool, positions: &[i64], after: Duration) -> Result<u64, OutboxError> {
    if positions.is_empty() {
        return Ok(0);
    }
    let rows = sqlx::query!(
        "UPDATE outbox SET published_at = NULL, refusals = 0, try_at = clock_timestamp()
         WHERE position = ANY($1) AND published_at <= clock_timestamp() - $2 * interval '1 second'",
        positions,
        after.as_secs_f64(),
    )
    .execute(pool)
    .await?;
    Ok(rows.rows_affected())
}
