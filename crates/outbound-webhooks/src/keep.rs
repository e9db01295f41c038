//! Keeps the tables small.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgQueryResult;

use crate::WebhooksError;

/// Rows deleted in one statement.
const BATCH: i64 = 1_000;
/// Statements in one call, so that it ends; the next call goes on.
const BATCHES_MAX: usize = 100;

/// Deletes what was of deleted endpoints, and these themselves; then deliveries, with their attempts, that ended longer than
/// `kept` ago, or that have been due for so long (their endpoint is disabled). What is still tried stays, however old. Says how
/// many deliveries.
///
/// # Errors
/// [`WebhooksError`]; what was deleted stays so.
pub async fn prune(pool: &PgPool, kept: Duration) -> Result<u64, WebhooksError> {
    Ok(deleted_endpoints(pool).await? + old_deliveries(pool, kept).await?)
}

async fn deleted_endpoints(pool: &PgPool) -> Result<u64, WebhooksError> {
    let deleted = in_batches(|| {
        // One under way is spared: its attempt would be recorded nowhere.
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

async fn old_deliveries(pool: &PgPool, kept: Duration) -> Result<u64, WebhooksError> {
    in_batches(|| {
        sqlx::query!(
            "DELETE FROM webhook_deliveries WHERE position IN (
                 SELECT d.position FROM webhook_deliveries d
                 WHERE coalesce(d.ended_at, d.next_attempt_at) < clock_timestamp() - $1 * interval '1 second'
                 ORDER BY coalesce(d.ended_at, d.next_attempt_at) LIMIT $2 FOR UPDATE SKIP LOCKED)",
            kept.as_secs_f64(),
            BATCH,
        )
        .execute(pool)
    })
    .await
}

/// Deletes a batch at a time until there is less than one; says how many rows.
async fn in_batches<D>(delete: impl Fn() -> D) -> Result<u64, WebhooksError>
where
    D: Future<Output = Result<PgQueryResult, sqlx::Error>>,
{
    let mut deleted = 0;
    for _ in 0..BATCHES_MAX {
        let rows = delete().await?.rows_affected();
        deleted += rows;
        if rows < BATCH.unsigned_abs() {
            break;
        }
    }
    Ok(deleted)
}
