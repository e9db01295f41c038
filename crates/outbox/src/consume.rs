//! Consumes an event once, in the order of its key, and parks a message that cannot be consumed.

use std::error::Error;
use std::future::Future;

use postgres_kit::text::replace_nul;
use sqlx::{PgConnection, PgPool};

use crate::{Event, OutboxError};

/// The effect of an event on the consumer's database. It is called in the transaction that marks the event as consumed and
/// changes nothing outside it; then the effect happens once, however often the event is delivered.
pub trait EventEffect: Send + Sync {
    /// Writes the effect in `tx`.
    ///
    /// # Errors
    /// [`EffectError`]: the transaction is rolled back.
    fn apply(
        &self,
        tx: &mut PgConnection,
        event: &Event,
    ) -> impl Future<Output = Result<(), EffectError>> + Send;

    /// Called after the commit, for logs and metrics. Not called if the process ends in between.
    fn committed(&self, _event: &Event) {}
}

/// The effect of an event was not written.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// The event can never be consumed; it is parked after some deliveries.
    #[error("the event can never be consumed: {0}")]
    Poison(String),
    /// The event cannot be consumed now; it is delivered again, without a limit.
    #[error("the effect of the event could not be written now; the broker delivers the event again")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

/// Outcome of consuming an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumeOutcome {
    /// The effect was committed.
    Processed,
    /// The event was processed before; nothing was changed.
    Duplicate,
    /// An earlier event of its key was not consumed yet; nothing was changed.
    OutOfOrder,
}

/// Whether the order of a key applies to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// Earlier events of the key must be consumed first.
    Required,
    /// The event is consumed although an earlier event of its key is missing and may never arrive.
    Waived,
}

/// Consumes an event: marks it as processed and applies its effect, in one transaction.
///
/// # Errors
/// [`EffectError`]; a commit without an answer is [`EffectError::Unavailable`], and the mark decides at the next delivery.
pub async fn consume(
    pool: &PgPool,
    consumer: &str,
    event: &Event,
    order: KeyOrder,
    effect: &impl EventEffect,
) -> Result<ConsumeOutcome, EffectError> {
    let unavailable = |error: sqlx::Error| EffectError::Unavailable(error.into());
    let outbox_unavailable = |error: OutboxError| EffectError::Unavailable(error.into());
    let mut tx = pool.begin().await.map_err(unavailable)?;
    let skipped = if !mark_processed(&mut tx, consumer, &event.event_id).await.map_err(outbox_unavailable)? {
        Some(ConsumeOutcome::Duplicate)
    } else if order == KeyOrder::Required
        && !is_next(&mut tx, consumer, event).await.map_err(outbox_unavailable)?
    {
        Some(ConsumeOutcome::OutOfOrder)
    } else {
        None
    };
    if let Some(outcome) = skipped {
        tx.rollback().await.map_err(unavailable)?;
        return Ok(outcome);
    }
    effect.apply(&mut tx, event).await?;
    advance_position(&mut tx, consumer, &event.key, event.sequence).await.map_err(outbox_unavailable)?;
    tx.commit().await.map_err(unavailable)?;
    effect.committed(event);
    Ok(ConsumeOutcome::Processed)
}

/// Marks the event as processed by `consumer`. False if it was marked before. Waits while another transaction marks the same
/// event.
async fn mark_processed(tx: &mut PgConnection, consumer: &str, event_id: &str) -> Result<bool, OutboxError> {
    let rows = sqlx::query!(
        "INSERT INTO processed_events (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        consumer,
        event_id,
    )
    .execute(tx)
    .await?;
    Ok(rows.rows_affected() > 0)
}

/// Whether every earlier event of the key was consumed or parked. The broker delivers in order, except for redeliveries; this
/// check keeps the order of effects for those too.
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

/// Advances the consumer's position in the key to `sequence`; the position never moves back.
async fn advance_position(
    tx: &mut PgConnection,
    consumer: &str,
    key: &str,
    sequence: i64,
) -> Result<(), OutboxError> {
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

/// A message that could not be consumed, as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedDelivery {
    /// The consumer that parked the message.
    pub consumer: String,
    /// The broker's stream.
    pub stream: String,
    /// Sequence number of the message in the stream.
    pub stream_sequence: i64,
    /// Subject of the message.
    pub subject: String,
    /// Id of the event; `None` if the message has none.
    pub event_id: Option<String>,
    /// The bytes of the message.
    pub payload: Vec<u8>,
    /// Why the message could not be consumed.
    pub reason: String,
    /// Number of deliveries.
    pub deliveries: i64,
}

/// Parks a message; a repeat changes nothing. `event` is `None` if the message is unreadable; otherwise later events of its key no
/// longer wait for it.
///
/// # Errors
/// [`OutboxError`]: the message must not be acknowledged.
pub async fn park(
    pool: &PgPool,
    delivery: &ParkedDelivery,
    event: Option<&Event>,
) -> Result<(), OutboxError> {
    let mut tx = pool.begin().await?;
    // A poison message may contain NUL.
    let event_id = delivery.event_id.as_deref().map(replace_nul);
    sqlx::query!(
        "INSERT INTO parked_deliveries
             (consumer, stream, stream_sequence, subject, event_id, payload, reason, deliveries)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
        delivery.consumer,
        delivery.stream,
        delivery.stream_sequence,
        &*replace_nul(&delivery.subject),
        event_id.as_deref(),
        delivery.payload,
        &*replace_nul(&delivery.reason),
        delivery.deliveries,
    )
    .execute(&mut *tx)
    .await?;
    if let Some(event) = event {
        advance_position(&mut tx, &delivery.consumer, &event.key, event.sequence).await?;
    }
    tx.commit().await?;
    Ok(())
}
