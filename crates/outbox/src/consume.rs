//! Consumes events once, in the order of their keys, and parks a message that cannot be consumed.
//!
//! A commit costs more than the effect of an event, so events that arrive together share a transaction. They share nothing else:
//! if the transaction fails, each event has one of its own.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::future::Future;
use std::time::Duration;

use crash_point::crash_point;
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use postgres_kit::text::replace_nul;
use postgres_kit::{Connection, Pool};
use trace_kit::TraceParent;

use crate::{Event, OutboxError};

/// Longest time for one transaction of a consumer: a server that went away without a word must not hold up the events of this process.
/// Longer than the server's own limits on a statement.
const CONSUME_TIMEOUT: Duration = Duration::from_secs(10);

/// Events consumed one by one that may be unavailable before the others are not tried. One may wait for a lock that concerns it
/// alone; after a second one the database does not answer, and a timeout for each event would last longer than the broker waits
/// for an acknowledgement.
const UNAVAILABLE_MAX: usize = 2;

/// The effect of events on the consumer's database. It is called in the transaction that marks the events as consumed and
/// changes nothing outside it; then the effect of an event happens once, however often the event is delivered.
pub trait EventEffect: Send + Sync {
    /// Writes the effects of `events` in `tx`, in the order of the slice, which has the events of a key in their order.
    ///
    /// # Errors
    /// [`EffectError`]: the transaction is rolled back. If there are several events, `apply` is called again for each one alone.
    fn apply(
        &self,
        tx: &mut Connection,
        events: &[&ReceivedEvent],
    ) -> impl Future<Output = Result<(), EffectError>> + Send;

    /// Called after the commit for each event, for logs and metrics. Not called if the process ends in between.
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

impl From<OutboxError> for EffectError {
    fn from(error: OutboxError) -> Self {
        Self::Unavailable(error.into())
    }
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

/// An event that was delivered to a consumer.
#[derive(Clone, Debug)]
pub struct ReceivedEvent {
    /// The event.
    pub event: Event,
    /// Whether it waits for the earlier events of its key.
    pub order: KeyOrder,
    /// Position of its consumption in the event's trace, for effects that continue the trace.
    pub trace_parent: Option<TraceParent>,
}

/// Consumes events, in any order: marks them as processed and applies their effects, in one transaction. If that fails, each
/// event is consumed in a transaction of its own, so that an event fails alone; after two that are unavailable the others are not
/// tried. Returns the result of each event, in the order of `received`.
///
/// A commit without an answer is [`EffectError::Unavailable`], and the mark decides at the next delivery.
pub async fn consume(
    pool: &Pool,
    consumer: &str,
    received: &[ReceivedEvent],
    effect: &impl EventEffect,
) -> Vec<Result<ConsumeOutcome, EffectError>> {
    let mut by_key: Vec<(usize, &ReceivedEvent)> = received.iter().enumerate().collect();
    // Earlier events of a key first; and since every process locks the rows of keys in this order, no two of them deadlock.
    by_key.sort_by(|(_, a), (_, b)| (&a.event.key, a.event.sequence).cmp(&(&b.event.key, b.event.sequence)));
    let mut results = Vec::with_capacity(received.len());
    let mut unavailable = 0;
    // An event may have been delivered any number of times. Each delivery follows the one before, whose mark decides about it; where there is
    // no mark, because the database did not answer, the next delivery is the first one.
    while !by_key.is_empty() {
        let mut ids = HashSet::new();
        let (different, repeated): (Vec<_>, Vec<_>) =
            by_key.into_iter().partition(|(_, received)| ids.insert(received.event.event_id.as_str()));
        by_key = repeated;
        let (numbers, events): (Vec<usize>, Vec<&ReceivedEvent>) = different.into_iter().unzip();
        let consumed = consume_different(pool, consumer, &events, effect, &mut unavailable).await;
        results.extend(numbers.into_iter().zip(consumed));
    }
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Consumes different events, those of a key in their order: together, or else one by one. `unavailable` counts those of the batch that were
/// consumed alone and were unavailable.
async fn consume_different(
    pool: &Pool,
    consumer: &str,
    events: &[&ReceivedEvent],
    effect: &impl EventEffect,
    unavailable: &mut usize,
) -> Vec<Result<ConsumeOutcome, EffectError>> {
    if events.len() > 1 && *unavailable < UNAVAILABLE_MAX {
        match consume_together(pool, consumer, events, effect).await {
            Ok(Some(outcomes)) => return outcomes.into_iter().map(Ok).collect(),
            // An event is early. Alone, it is deferred and the others are consumed.
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(
                    consumer,
                    events = events.len(),
                    error = &error as &dyn Error,
                    "the event consumer could not consume events in one transaction; it consumes them one by one"
                );
            }
        }
    }
    let mut results = Vec::with_capacity(events.len());
    for received in events {
        let result = if *unavailable >= UNAVAILABLE_MAX {
            Err(EffectError::Unavailable("the effects of other events were unavailable just now".into()))
        } else {
            consume_together(pool, consumer, &[*received], effect).await.map(|outcomes| {
                outcomes.and_then(|outcomes| outcomes.first().copied()).unwrap_or(ConsumeOutcome::OutOfOrder)
            })
        };
        *unavailable += usize::from(matches!(result, Err(EffectError::Unavailable(_))));
        results.push(result);
    }
    results
}

/// Consumes different events, those of a key in their order, in one transaction; returns their outcomes. `None` if an earlier
/// event of a key was not consumed yet, and nothing was changed.
async fn consume_together(
    pool: &Pool,
    consumer: &str,
    events: &[&ReceivedEvent],
    effect: &impl EventEffect,
) -> Result<Option<Vec<ConsumeOutcome>>, EffectError> {
    let connection = pool.acquire().await.map_err(|error| EffectError::Unavailable(error.into()))?;
    let consumed = consume_in_transaction(connection, consumer, events, effect);
    let consumed = tokio::time::timeout(CONSUME_TIMEOUT, consumed);
    consumed.await.unwrap_or_else(|_| Err(EffectError::Unavailable(postgres_kit::unanswered().into())))
}

async fn consume_in_transaction(
    connection: Connection,
    consumer: &str,
    events: &[&ReceivedEvent],
    effect: &impl EventEffect,
) -> Result<Option<Vec<ConsumeOutcome>>, EffectError> {
    let unavailable = |error: sqlx::Error| EffectError::Unavailable(error.into());
    let mut tx = connection.begin_with("BEGIN").await.map_err(unavailable)?;
    let marks = mark_processed(&mut tx, consumer, events).await?;
    let new: Vec<&ReceivedEvent> =
        events.iter().zip(&marks).filter(|(_, mark)| mark.is_new).map(|(received, _)| *received).collect();
    let are_in_order = are_in_order(events, &marks);
    if new.is_empty() || !are_in_order {
        tx.rollback().await.map_err(unavailable)?;
    } else {
        if let Err(error) = effect.apply(&mut tx, &new).await {
            // Otherwise the next attempt could wait for the locks of this one.
            tx.rollback().await.map_err(unavailable)?;
            return Err(error);
        }
        crash_point("before consuming events");
        tx.commit().await.map_err(unavailable)?;
        crash_point("after consuming events");
        new.iter().for_each(|received| effect.committed(&received.event));
    }
    let outcome =
        |mark: &Mark| if mark.is_new { ConsumeOutcome::Processed } else { ConsumeOutcome::Duplicate };
    Ok(are_in_order.then(|| marks.iter().map(outcome).collect()))
}

/// What the database says about a received event.
struct Mark {
    /// The event was not marked as processed before.
    is_new: bool,
    /// Sequence number of the last event of the key that was consumed or parked before the statement; 0 if none was.
    last_sequence: i64,
}

/// Marks different events as processed by `consumer` and advances its positions in their keys; a position never moves back.
/// Waits while another transaction marks one of the events.
async fn mark_processed(
    tx: &mut Connection,
    consumer: &str,
    events: &[&ReceivedEvent],
) -> Result<Vec<Mark>, OutboxError> {
    let (mut ids, mut keys, mut sequences) = (Vec::new(), Vec::new(), Vec::new());
    for ReceivedEvent { event, .. } in events {
        ids.push(event.event_id.as_str());
        keys.push(event.key.as_str());
        sequences.push(event.sequence);
    }
    // The statement reads the positions as they were before it. If another transaction advances one meanwhile, an event is
    // deferred in vain, never consumed too early.
    let marks = sqlx::query_as!(
        Mark,
        r#"WITH received AS (
               SELECT * FROM unnest($2::text[], $3::text[], $4::bigint[])
                             WITH ORDINALITY AS r (event_id, subject_key, sequence, n)),
           marked AS (
               INSERT INTO processed_events (consumer, event_id)
               SELECT $1, event_id FROM received ORDER BY n
               ON CONFLICT DO NOTHING RETURNING event_id),
           advanced AS (
               INSERT INTO consumer_positions AS k (consumer, subject_key, last_sequence)
               SELECT $1, subject_key, max(sequence) FROM received JOIN marked USING (event_id)
               GROUP BY subject_key ORDER BY subject_key COLLATE "C"
               ON CONFLICT (consumer, subject_key) DO UPDATE
               SET last_sequence = greatest(k.last_sequence, excluded.last_sequence), updated_at = clock_timestamp())
           SELECT marked.event_id IS NOT NULL AS "is_new!",
                  coalesce((SELECT p.last_sequence FROM consumer_positions p
                            WHERE p.consumer = $1 AND p.subject_key = received.subject_key), 0) AS "last_sequence!"
           FROM received LEFT JOIN marked USING (event_id) ORDER BY n"#,
        consumer,
        &ids as &[&str],
        &keys as &[&str],
        &sequences,
    )
    .fetch_all(tx)
    .await?;
    Ok(marks)
}

/// Whether every earlier event of each new event's key was consumed or parked, or precedes it in `events`. The broker delivers in
/// order, except for redeliveries; this check keeps the order of effects for those too.
fn are_in_order(events: &[&ReceivedEvent], marks: &[Mark]) -> bool {
    let mut positions: HashMap<&str, i64> = HashMap::new();
    events.iter().zip(marks).all(|(ReceivedEvent { event, order, .. }, mark)| {
        let position = positions.entry(&event.key).or_insert(mark.last_sequence);
        let is_next = event.sequence <= position.saturating_add(1);
        *position = event.sequence.max(*position);
        is_next || !mark.is_new || *order == KeyOrder::Waived
    })
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
    /// When the broker stored the message: a stream that was made anew counts from the beginning.
    pub published_at: Timestamp,
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
pub async fn park(pool: &Pool, delivery: &ParkedDelivery, event: Option<&Event>) -> Result<(), OutboxError> {
    let mut tx = pool.begin().await?;
    // A poison message may contain NUL.
    let event_id = delivery.event_id.as_deref().map(replace_nul);
    sqlx::query!(
        "INSERT INTO parked_deliveries
             (consumer, stream, stream_sequence, published_at, subject, event_id, payload, reason, deliveries)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
        delivery.consumer,
        delivery.stream,
        delivery.stream_sequence,
        delivery.published_at.to_sqlx(),
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

/// Advances the consumer's position in the key to `sequence`; the position never moves back.
async fn advance_position(
    tx: &mut Connection,
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
