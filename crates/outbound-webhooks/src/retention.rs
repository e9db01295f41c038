//! Deletes rows beyond the retention.

use std::time::Duration;

use postgres_kit::Pool;
use postgres_kit::deletion::{BATCH, delete_in_batches};

use crate::WebhooksError;

/// Deletes the deliveries of deleted endpoints and these endpoints; then deliveries, with their attempts, that ended longer
/// than `retention` ago or have been due for that long (because their endpoint is disabled). A delivery with further attempts
/// stays. Returns the number of deleted deliveries.
///
/// # Errors
/// [`WebhooksError`]; rows that were deleted before stay deleted.
pub async fn prune(pool: &Pool, retention: Duration) -> Result<u64, WebhooksError> {
    Ok(deleted_endpoints(pool).await? + old_deliveries(pool, retention).await?)
}

async fn deleted_endpoints(pool: &Pool) -> Result<u64, WebhooksError> {
    let deleted = delete_in_batches(|| {
        // A delivery in flight stays, so that its attempt can be recorded.
        sqlx::query!(
            "DELETE FROM webhook_deliveries WHERE position IN (
                 SELECT d.position FROM webhook_endpoints e JOIN webhook_deliveries d USING (endpoint_id)
                 WHERE e.status = 'deleted' AND (d.lease IS NULL OR d.next_attempt_at <= clock_timestamp())
                 LIMIT $1 FOR UPDATE OF d SKIP LOCKED)",
            BATCH,
        )
        .execute(pool)
    })
    .await?;
    sqlx::query!(
        "DELETE FROM webhook_endpoints e
         WHERE e.status = 'deleted'
           AND NOT EXISTS (SELECT FROM webhook_deliveries d WHERE d.endpoint_id = e.endpoint_id)"
    )
    .execute(pool)
    .await?;
    Ok(deleted)
}

/// An index does not answer a comparison with `clock_timestamp()`: each call would read every delivery.
async fn old_deliveries(pool: &Pool, retention: Duration) -> Result<u64, WebhooksError> {
    let deleted = delete_in_batches(|| {
        sqlx::query!(
            "DELETE FROM webhook_deliveries WHERE position IN (
                 SELECT d.position FROM webhook_deliveries d
                 WHERE coalesce(d.ended_at, d.next_attempt_at) < statement_timestamp() - $1 * interval '1 second'
                 ORDER BY coalesce(d.ended_at, d.next_attempt_at) LIMIT $2 FOR UPDATE SKIP LOCKED)",
            retention.as_secs_f64(),
            BATCH,
        )
        .execute(pool)
    })
    .await?;
    Ok(deleted)
}
