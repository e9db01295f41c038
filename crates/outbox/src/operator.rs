//! Commands of operators: list and retry parked events, list and discard parked deliveries, republish events.

use std::time::Duration;

use jiff::Timestamp;
use postgres_kit::Pool;

use crate::OutboxError;
use crate::consume::ParkedDelivery;

/// Rows updated in one statement.
const BATCH: i32 = 1_000;

/// An event that the broker rejected until the relay parked it. It blocks the later events of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedEvent {
    /// See [`crate::Event::event_id`].
    pub event_id: String,
    /// See [`crate::Event::kind`].
    pub kind: String,
    /// See [`crate::Event::key`].
    pub key: String,
    /// See [`crate::Event::sequence`].
    pub sequence: i64,
    /// Reason of the last rejection.
    pub rejection: String,
    /// Number of rejections.
    pub rejections: i32,
    /// When the relay parked the event.
    pub parked_at: Timestamp,
}

/// Lists parked events, oldest first, at most `limit`.
///
/// # Errors
/// [`OutboxError`].
pub async fn parked_events(pool: &Pool, limit: i64) -> Result<Vec<ParkedEvent>, OutboxError> {
    let rows = sqlx::query!(
        r#"SELECT event_id, kind, subject_key, sequence, rejection AS "rejection!", rejections, parked_at AS "parked_at!"
           FROM outbox WHERE rejections > 0 AND parked_at IS NOT NULL ORDER BY position LIMIT $1"#,
        limit,
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| ParkedEvent {
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

/// Queues a parked event to be published again, with zero rejections. False if the event is not parked.
///
/// # Errors
/// [`OutboxError`].
pub async fn retry_event(pool: &Pool, event_id: &str) -> Result<bool, OutboxError> {
    let was_parked = sqlx::query_scalar!(r#"SELECT retry_parked_event($1) AS "was_parked!""#, event_id);
    Ok(was_parked.fetch_one(pool).await?)
}

/// Queues all events that were published in the last `since` to be published again, oldest first; returns their number. For
/// consumers that missed events because the broker lost or dropped them, or that lost their own data. Works in short
/// statements, and the relay publishes meanwhile.
///
/// # Errors
/// [`OutboxError`]; events that were queued before stay queued, and the call can be repeated.
pub async fn republish(pool: &Pool, since: Duration) -> Result<u64, OutboxError> {
    // Events that the relay publishes from now on are not republished again by this call.
    let now = sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#).fetch_one(pool).await?;
    let mut republished = 0;
    loop {
        let rows = sqlx::query_scalar!(
            r#"SELECT republish_events($1::timestamptz - $2 * interval '1 second', $1, $3) AS "rows!""#,
            now,
            since.as_secs_f64(),
            BATCH,
        )
        .fetch_one(pool)
        .await?;
        match rows {
            0 => return Ok(republished),
            rows => republished += rows.unsigned_abs(),
        }
    }
}

/// Lists messages that are parked, were not processed since and not discarded, oldest first, at most `limit`; with the time at
/// which each was parked.
///
/// # Errors
/// [`OutboxError`].
pub async fn parked_deliveries(
    pool: &Pool,
    limit: i64,
) -> Result<Vec<(ParkedDelivery, Timestamp)>, OutboxError> {
    let rows = sqlx::query!(
        "SELECT consumer, stream, stream_sequence, published_at, subject, event_id, payload, reason, deliveries, parked_at
         FROM parked_deliveries d
         WHERE discarded_at IS NULL
           AND NOT EXISTS (SELECT FROM processed_events p WHERE p.consumer = d.consumer AND p.event_id = d.event_id)
         ORDER BY parked_at, consumer, stream_sequence LIMIT $1",
        limit,
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let delivery = ParkedDelivery {
                consumer: row.consumer,
                stream: row.stream,
                stream_sequence: row.stream_sequence,
                published_at: row.published_at.to_jiff(),
                subject: row.subject,
                event_id: row.event_id,
                payload: row.payload,
                reason: row.reason,
                deliveries: row.deliveries,
            };
            (delivery, row.parked_at.to_jiff())
        })
        .collect())
}

/// An operator's decision that a consumer will never process a parked message.
#[derive(Clone, Copy, Debug)]
pub struct Discard<'a> {
    /// The consumer that parked the message.
    pub consumer: &'a str,
    /// The broker's stream.
    pub stream: &'a str,
    /// Sequence number of the message in the stream.
    pub stream_sequence: i64,
    /// The operator.
    pub by: &'a str,
    /// Why the message is discarded.
    pub reason: &'a str,
}

/// Discards a parked message; its row stays as a record and is no longer listed. False if the message is not parked, was
/// processed since, or was discarded before.
///
/// # Errors
/// [`OutboxError`].
pub async fn discard(pool: &Pool, discard: Discard<'_>) -> Result<bool, OutboxError> {
    let was_parked = sqlx::query_scalar!(
        r#"SELECT discard_parked_message($1, $2, $3, $4, $5) AS "was_parked!""#,
        discard.consumer,
        discard.stream,
        discard.stream_sequence,
        discard.by,
        discard.reason,
    );
    Ok(was_parked.fetch_one(pool).await?)
}
