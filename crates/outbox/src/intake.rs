//! A consumer's side in its database: what it has taken in, and what it could not.

use std::error::Error;
use std::future::Future;

use jiff::Timestamp;
use sqlx::{PgConnection, PgPool};

use crate::{Event, OutboxError};

/// What a consumer does with an event. It is called in the transaction that marks the event as taken in, and changes
/// nothing outside it: then its effect happens once, however often the event comes.
pub trait Effect: Send + Sync {
    /// Writes the effect into `tx`.
    ///
    /// # Errors
    /// [`EffectError`]: nothing of it stays.
    fn apply(
        &self,
        tx: &mut PgConnection,
        event: &Event,
    ) -> impl Future<Output = Result<(), EffectError>> + Send;

    /// Called after the effect was committed, for logs and metrics. Not called if the process dies in between.
    fn committed(&self, _event: &Event) {}
}

/// An event without its effect.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// This event cannot be taken in, whenever it comes: it is parked after some deliveries.
    #[error("the event cannot be taken in: {0}")]
    Poison(String),
    /// It cannot be taken in now: it is delivered again, for as long as it takes.
    #[error("the event cannot be taken in now")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its effect is stored, now.
    Now,
    /// Its effect was stored before.
    Before,
    /// Nothing was done: an earlier event of its key was not taken in yet.
    TooEarly,
}

/// What of an event that comes before an earlier one of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has to wait.
    Kept,
    /// It is taken in: the earlier one has been waited for long enough, and may never come.
    Waived,
}

/// Takes an event in: marks it and applies its effect in one transaction.
///
/// # Errors
/// [`EffectError`]; a commit without an answer is [`EffectError::Unavailable`], and the mark decides when the event comes
/// again.
pub async fn take_in(
    pool: &PgPool,
    consumer: &str,
    event: &Event,
    turn: Turn,
    effect: &impl Effect,
) -> Result<Taken, EffectError> {
    let unavailable = |error: sqlx::Error| EffectError::Unavailable(error.into());
    let not_now = |error: OutboxError| EffectError::Unavailable(error.into());
    let mut tx = pool.begin().await.map_err(unavailable)?;
    let known = if !claim(&mut tx, consumer, &event.event_id).await.map_err(not_now)? {
        Some(Taken::Before)
    } else if turn == Turn::Kept && !is_next(&mut tx, consumer, event).await.map_err(not_now)? {
        Some(Taken::TooEarly)
    } else {
        None
    };
    if let Some(known) = known {
        tx.rollback().await.map_err(unavailable)?;
        return Ok(known);
    }
    effect.apply(&mut tx, event).await?;
    come_to(&mut tx, consumer, &event.key, event.sequence).await.map_err(not_now)?;
    tx.commit().await.map_err(unavailable)?;
    effect.committed(event);
    Ok(Taken::Now)
}

/// Marks the event as taken in by `consumer`, in the transaction of the effect. False when it was before: then there is
/// nothing to do. While another transaction is at the same event, this one waits for it.
///
/// # Errors
/// [`OutboxError`].
pub async fn claim(tx: &mut PgConnection, consumer: &str, event_id: &str) -> Result<bool, OutboxError> {
    let rows = sqlx::query!(
        "INSERT INTO processed_events (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        consumer,
        event_id,
    )
    .execute(tx)
    .await?;
    Ok(rows.rows_affected() > 0)
}

/// Whether every earlier event of its key was taken in, or was given up. The broker delivers in order, save what it delivers
/// again; this is what keeps the order of effects then.
async fn is_next(tx: &mut PgConnection, consumer: &str, event: &Event) -> Result<bool, OutboxError> {
    let last = sqlx::query_scalar!(
        "SELECT last_sequence FROM consumer_positions WHERE consumer = $1 AND subject_key = $2",
        consumer,
        event.key,
    )
    .fetch_optional(tx)
    .await?;
    Ok(event.sequence <= last.unwrap_or(0).saturating_add(1))
}

/// Remembers that the consumer has come to `sequence` with the key; it never goes back.
async fn come_to(tx: &mut PgConnection, consumer: &str, key: &str, sequence: i64) -> Result<(), OutboxError> {
    sqlx::query!(
        "INSERT INTO consumer_positions AS k (consumer, subject_key, last_sequence) VALUES ($1, $2, $3)
         ON CONFLICT (consumer, subject_key) DO UPDATE
         SET last_sequence = greatest(k.last_sequence, excluded.last_sequence), updated_at = clock_timestamp()",
        consumer,
        key,
        sequence,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// A message that could not be taken in, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedDelivery {
    /// Who could not.
    pub consumer: String,
    /// The broker's stream.
    pub stream: String,
    /// Its number there.
    pub stream_sequence: i64,
    /// Its subject.
    pub subject: String,
    /// The event, where that could be read.
    pub event_id: Option<String>,
    /// Its bytes.
    pub payload: Vec<u8>,
    /// Why.
    pub reason: String,
    /// Times it was delivered.
    pub deliveries: i64,
}

/// Parks a message; once, however often it is tried. `event` is what could be read of it: the later ones of its key wait for
/// it no longer.
///
/// # Errors
/// [`OutboxError`]: the message must not be confirmed.
pub async fn park(
    pool: &PgPool,
    delivery: &ParkedDelivery,
    event: Option<&Event>,
) -> Result<(), OutboxError> {
    let mut tx = pool.begin().await?;
    // PostgreSQL's text holds no NUL, and a poisonous message may.
    let storable = |words: &str| words.replace('\0', "\u{fffd}");
    sqlx::query!(
        "INSERT INTO parked_deliveries
             (consumer, stream, stream_sequence, subject, event_id, payload, reason, deliveries)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
        delivery.consumer,
        delivery.stream,
        delivery.stream_sequence,
        storable(&delivery.subject),
        delivery.event_id.as_deref().map(storable),
        delivery.payload,
        storable(&delivery.reason),
        delivery.deliveries,
    )
    .execute(&mut *tx)
    .await?;
    if let Some(event) = event {
        come_to(&mut tx, &delivery.consumer, &event.key, event.sequence).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// What is parked, was not taken in since and not discarded, the oldest first, at most `limit`; with the times at which it was
/// parked.
///
/// # Errors
/// [`OutboxError`].
pub async fn parked(pool: &PgPool, limit: i64) -> Result<Vec<(ParkedDelivery, Timestamp)>, OutboxError> {
    let rows = sqlx::query!(
        "SELECT consumer, stream, stream_sequence, subject, event_id, payload, reason, deliveries, parked_at
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

/// A person's word that a parked message will never be taken in.
#[derive(Clone, Copy, Debug)]
pub struct Discard<'a> {
    /// Who could not take it in.
    pub consumer: &'a str,
    /// The broker's stream.
    pub stream: &'a str,
    /// Its number there.
    pub stream_sequence: i64,
    /// Who says so.
    pub by: &'a str,
    /// Why.
    pub reason: &'a str,
}

/// Discards a parked message: it stays as a record and is no longer called parked. Says whether it was; what was taken in since
/// is not.
///
/// # Errors
/// [`OutboxError`].
pub async fn discard(pool: &PgPool, discard: Discard<'_>) -> Result<bool, OutboxError> {
    let rows = sqlx::query!(
        "UPDATE parked_deliveries d SET discarded_at = clock_timestamp(), discarded_by = $4, discarded_reason = $5
         WHERE consumer = $1 AND stream = $2 AND stream_sequence = $3 AND discarded_at IS NULL
           AND NOT EXISTS (SELECT FROM processed_events p WHERE p.consumer = d.consumer AND p.event_id = d.event_id)",
        discard.consumer,
        discard.stream,
        discard.stream_sequence,
        discard.by,
        discard.reason,
    )
    .execute(pool)
    .await?;
    Ok(rows.rows_affected() > 0)
}
