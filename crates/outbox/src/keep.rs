//! Keeps the tables small, shows what is parked, and has things published again.
//!
//! Published events are kept for a while, and can be published again: consumers know them by their ids.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::PgPool;
use sqlx::postgres::PgQueryResult;

use crate::OutboxError;

/// Rows deleted in one statement.
const BATCH: i64 = 1_000;
/// Statements in one call, so that it ends; the next call goes on.
const BATCHES_MAX: usize = 100;

/// Deletes a batch at a time until there is less than one; says how many rows.
async fn in_batches<D>(delete: impl Fn() -> D) -> Result<u64, OutboxError>
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

/// Deletes events that were published longer than `keep` ago; says how many.
///
/// # Errors
/// [`OutboxError`]; what was deleted stays so.
pub async fn prune_published(pool: &PgPool, keep: Duration) -> Result<u64, OutboxError> {
    in_batches(|| {
        sqlx::query!(
            "DELETE FROM outbox WHERE position IN (
                 SELECT position FROM outbox
                 WHERE published_at < clock_timestamp() - $1 * interval '1 second'
                 ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
            keep.as_secs_f64(),
            BATCH,
        )
        .execute(pool)
    })
    .await
}

/// Forgets what consumers took in longer than `keep` ago, and how far they had come with keys of which nothing came since; says
/// how many events. Must be longer than the broker keeps them. An event whose row is kept can be published again, so that its mark
/// is kept as long.
///
/// # Errors
/// [`OutboxError`]; what was deleted stays so.
pub async fn prune_processed(pool: &PgPool, keep: Duration) -> Result<u64, OutboxError> {
    in_batches(|| {
        sqlx::query!(
            "DELETE FROM consumer_positions WHERE (consumer, subject_key) IN (
                 SELECT consumer, subject_key FROM consumer_positions
                 WHERE updated_at < clock_timestamp() - $1 * interval '1 second'
                 ORDER BY updated_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
            keep.as_secs_f64(),
            BATCH,
        )
        .execute(pool)
    })
    .await?;
    // What was parked and taken in since must not look parked again when its mark is gone. What was discarded goes as late.
    in_batches(|| {
        sqlx::query!(
            "DELETE FROM parked_deliveries WHERE (consumer, stream, stream_sequence) IN (
                 SELECT d.consumer, d.stream, d.stream_sequence
                 FROM parked_deliveries d LEFT JOIN processed_events p USING (consumer, event_id)
                 WHERE least(p.processed_at, d.discarded_at) < clock_timestamp() - $1 * interval '1 second'
                   AND NOT EXISTS (SELECT FROM outbox o WHERE o.event_id = d.event_id) LIMIT $2)",
            keep.as_secs_f64(),
            BATCH,
        )
        .execute(pool)
    })
    .await?;
    in_batches(|| {
        sqlx::query!(
            "DELETE FROM processed_events WHERE (consumer, event_id) IN (
                 SELECT consumer, event_id FROM processed_events p
                 WHERE processed_at < clock_timestamp() - $1 * interval '1 second'
                   AND NOT EXISTS (SELECT FROM outbox o WHERE o.event_id = p.event_id)
                 ORDER BY processed_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
            keep.as_secs_f64(),
            BATCH,
        )
        .execute(pool)
    })
    .await
}

/// An event that the broker refused until it was parked. It keeps back the later events of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Which.
    pub event_id: String,
    /// Of what kind.
    pub kind: String,
    /// Of which key.
    pub key: String,
    /// Its number among those of its key.
    pub sequence: i64,
    /// Why it was refused the last time.
    pub rejection: String,
    /// Times it was refused.
    pub rejections: i32,
    /// Since when it is parked.
    pub parked_at: Timestamp,
}

/// What is parked, the oldest first, at most `limit`.
///
/// # Errors
/// [`OutboxError`].
pub async fn parked(pool: &PgPool, limit: i64) -> Result<Vec<Parked>, OutboxError> {
    let rows = sqlx::query!(
        r#"SELECT event_id, kind, subject_key, sequence, rejection AS "rejection!", rejections, parked_at AS "parked_at!"
           FROM outbox WHERE published_at IS NULL AND parked_at IS NOT NULL ORDER BY position LIMIT $1"#,
        limit,
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Parked {
            event_id: row.event_id,
            kind: row.kind,
            key: row.subject_key,
            sequence: row.sequence,
            rejection: row.rejection,
            rejections: row.rejections,
            parked_at: row.parked_at.to_jiff(),
        })
        .collect())
}

/// Has a parked event tried again from the start; says whether it was parked.
///
/// # Errors
/// [`OutboxError`].
pub async fn retry(pool: &PgPool, event_id: &str) -> Result<bool, OutboxError> {
    let rows = sqlx::query!(
        "UPDATE outbox SET parked_at = NULL, rejections = 0, next_attempt_at = clock_timestamp()
         WHERE event_id = $1 AND parked_at IS NOT NULL",
        event_id,
    )
    .execute(pool)
    .await?;
    Ok(rows.rows_affected() > 0)
}

/// Has everything published again that was published in the last `since`, the oldest first; says how much. For a
/// consumer that has missed events: its effects and marks were lost, or the broker's disk was. However much it is, no statement
/// is long; the relay publishes meanwhile.
///
/// # Errors
/// [`OutboxError`]; what was done until then stays so, and it can be called again.
pub async fn republish(pool: &PgPool, since: Duration) -> Result<u64, OutboxError> {
    // What the relay publishes from now on is not taken a second time.
    let now = sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#).fetch_one(pool).await?;
    let (mut after, mut republished) = (0, 0);
    loop {
        let rows = sqlx::query_scalar!(
            "UPDATE outbox SET published_at = NULL, rejections = 0, next_attempt_at = clock_timestamp()
             WHERE position IN (SELECT position FROM outbox
                                WHERE published_at >= $1::timestamptz - $2 * interval '1 second' AND published_at < $1
                                  AND position > $3
                                ORDER BY position LIMIT $4)
             RETURNING position",
            now,
            since.as_secs_f64(),
            after,
            BATCH,
        )
        .fetch_all(pool)
        .await?;
        republished += rows.len() as u64;
        match rows.into_iter().max() {
            Some(last) => after = last,
            None => return Ok(republished),
        }
    }
}
