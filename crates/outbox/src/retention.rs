//! Deletes rows beyond the retention.
//!
//! Published events are stored for a while so that they can be republished.
//!
//! A batch reads the rows that it deletes, and not those that stay: the age is compared with `statement_timestamp()`, because an index
//! does not answer a comparison with `clock_timestamp()`, and `OFFSET 0` looks each event up, instead of joining all of them.

use std::time::Duration;

use postgres_kit::Pool;
use postgres_kit::deletion::{BATCH, delete_in_batches};

use crate::OutboxError;

/// Deletes events that were published longer than `retention` ago; returns their number.
///
/// # Errors
/// [`OutboxError`]; rows that were deleted before stay deleted.
pub async fn prune_published(pool: &Pool, retention: Duration) -> Result<u64, OutboxError> {
    let deleted = delete_in_batches(|| {
        sqlx::query!(
            "DELETE FROM outbox WHERE position IN (
                 SELECT position FROM outbox
                 WHERE published_at < statement_timestamp() - $1 * interval '1 second'
                 ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
            retention.as_secs_f64(),
            BATCH,
        )
        .execute(pool)
    })
    .await?;
    Ok(deleted)
}

/// Deletes the marks of events that consumers consumed longer than `retention` ago, their positions in keys without an event
/// since, and parked deliveries that were processed or discarded as long ago; returns the number of marks. `retention` must be
/// longer than the broker's retention of messages. The mark of an event whose row is stored stays, because the event can be
/// republished.
///
/// # Errors
/// [`OutboxError`]; rows that were deleted before stay deleted.
pub async fn prune_processed(pool: &Pool, retention: Duration) -> Result<u64, OutboxError> {
    delete_in_batches(|| {
        sqlx::query!(
            "DELETE FROM consumer_positions WHERE (consumer, subject_key) IN (
                 SELECT consumer, subject_key FROM consumer_positions
                 WHERE updated_at < statement_timestamp() - $1 * interval '1 second'
                 ORDER BY updated_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
            retention.as_secs_f64(),
            BATCH,
        )
        .execute(pool)
    })
    .await?;
    // Before the marks: without its mark a delivery that was processed after it was parked would be listed again.
    delete_in_batches(|| {
        sqlx::query!(
            "DELETE FROM parked_deliveries WHERE (consumer, stream, stream_sequence) IN (
                 SELECT d.consumer, d.stream, d.stream_sequence
                 FROM parked_deliveries d LEFT JOIN processed_events p USING (consumer, event_id)
                 WHERE least(p.processed_at, d.discarded_at) < clock_timestamp() - $1 * interval '1 second'
                   AND NOT EXISTS (SELECT FROM outbox o WHERE o.event_id = d.event_id) LIMIT $2)",
            retention.as_secs_f64(),
            BATCH,
        )
        .execute(pool)
    })
    .await?;
    let deleted = delete_in_batches(|| {
        sqlx::query!(
            "DELETE FROM processed_events WHERE (consumer, event_id) IN (
                 SELECT consumer, event_id FROM processed_events p
                 WHERE processed_at < statement_timestamp() - $1 * interval '1 second'
                   AND NOT EXISTS (SELECT FROM outbox o WHERE o.event_id = p.event_id OFFSET 0)
                 ORDER BY processed_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
            retention.as_secs_f64(),
            BATCH,
        )
        .execute(pool)
    })
    .await?;
    Ok(deleted)
}
