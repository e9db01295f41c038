//! Keeps the tables small.

use std::time::Duration;

use sqlx::PgPool;

use crate::WebhooksError;

/// Rows deleted in one statement.
const BATCH: i64 = 1_000;
/// Statements in one call, so that it ends; the next call goes on.
const BATCHES_MAX: usize = 100;

/// Deletes deliveries, with their attempts, whose event was taken in longer than `kept` ago, and those of deleted endpoints;
/// then the endpoints that were deleted and have none left. Says how many deliveries.
///
/// # Errors
/// [`WebhooksError`]; what was deleted stays so.
pub async fn prune(pool: &PgPool, kept: Duration) -> Result<u64, WebhooksError> {
    let mut deleted = 0;
    for _ in 0..BATCHES_MAX {
        // One under way is spared: its attempt would be recorded nowhere.
        let rows = sqlx::query!(
            "DELETE FROM webhook_deliveries WHERE position IN (
                 SELECT d.position FROM webhook_deliveries d
                 WHERE (d.made_at < clock_timestamp() - $1 * interval '1 second'
                        OR d.endpoint_id IN (SELECT e.endpoint_id FROM webhook_endpoints e WHERE e.status = 'deleted'))
                   AND (d.lease IS NULL OR d.next_at <= clock_timestamp())
                 ORDER BY d.made_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
            kept.as_secs_f64(),
            BATCH,
        )
        .execute(pool)
        .await?
        .rows_affected();
        deleted += rows;
        if rows < BATCH.unsigned_abs() {
            break;
        }
    }
    sqlx::query!(
        "DELETE FROM webhook_endpoints e
         WHERE e.status = 'deleted'
           AND NOT EXISTS (SELECT FROM webhook_deliveries d WHERE d.endpoint_id = e.endpoint_id)"
    )
    .execute(pool)
    .await?;
    Ok(deleted)
}
