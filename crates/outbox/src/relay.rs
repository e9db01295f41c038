//! Publishes what is written, in order for each key, until the broker has confirmed it.
//!
//! Published means confirmed. What is not known to be published is published again, for as long as it takes; what the broker
//! refuses is parked after some tries and keeps back only the later events of its own key.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt as _;
use sqlx::postgres::PgListener;
use sqlx::{PgConnection, PgPool};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::nudge::CHANNEL;
use crate::seat::Seat;
use crate::{Event, OutboxError, PublishError, Publisher};

/// How long one look may publish; what is left waits for the next. Well below what ends the seat's session.
const PUBLISH_WITHIN: Duration = Duration::from_secs(5);
/// How long the rows of one look may take to be read or marked.
const ROWS_WITHIN: Duration = Duration::from_secs(5);

/// How a relay works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayOptions {
    /// Pause between two looks when nobody nudges, and between two tries to take the seat. Default 250 ms; S3.5 allows 500.
    pub poll_interval: Duration,
    /// Events taken in one look, at least 1. Default 256.
    pub batch: i64,
    /// Keys published at once, at least 1. Default 32.
    pub width: usize,
    /// Times an event is refused before it is parked, at least 1. Default 5.
    pub refusals_max: i32,
    /// Pause after the first rejection; doubled each time. Default 200 ms.
    pub refused_pause: Duration,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_millis(250),
            batch: 256,
            width: 32,
            refusals_max: 5,
            refused_pause: Duration::from_millis(200),
        }
    }
}

/// The relay over a pool and a broker. Any number may run; one is at work, and another takes over when it dies.
#[derive(Debug)]
pub struct Relay<P> {
    pool: PgPool,
    publisher: P,
    options: RelayOptions,
}

/// A stored event and its row.
struct Due {
    position: i64,
    rejections: i32,
    event: Event,
}

/// What became of an event of one look.
enum Told {
    Published(i64),
    Refused { position: i64, rejections: i32, event_id: String, reason: String },
    Unknown(String),
}

impl<P: Publisher> Relay<P> {
    /// A relay; the tables must be migrated.
    #[must_use]
    pub fn new(pool: PgPool, publisher: P, options: RelayOptions) -> Self {
        Self { pool, publisher, options }
    }

    /// Publishes until `stop`; while another relay is at work, waits for its seat.
    pub async fn run(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            match Seat::take(&self.pool).await {
                Ok(Some(seat)) => {
                    tracing::info!("this relay publishes now");
                    self.publish(seat, stop).await;
                }
                Ok(None) => tracing::debug!("another relay publishes"),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the relay's seat cannot be taken"
                    );
                }
            }
            pause(self.options.poll_interval, stop).await;
        }
    }

    /// Publishes until `stop` or until the seat is lost.
    async fn publish(&self, mut seat: Seat, stop: &CancellationToken) {
        let mut nudges = listen(&self.pool).await;
        while !stop.is_cancelled() {
            match self.look(seat.session()).await {
                // Where there is more and the broker takes it, there is no reason to wait.
                Ok(full_and_going) if full_and_going => continue,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the relay's seat is lost");
                    return;
                }
            }
            tokio::select! {
                () = pause(self.options.poll_interval, stop) => {}
                () = nudged(&mut nudges) => {}
            }
        }
        seat.leave().await;
    }

    /// One look: publishes what is due and marks what became of it. Says whether there may be more that can go at once.
    async fn look(&self, session: &mut PgConnection) -> Result<bool, OutboxError> {
        let due = bounded(due(session, self.options.batch)).await?;
        let full = i64::try_from(due.len()).is_ok_and(|count| count >= self.options.batch);
        if due.is_empty() {
            return Ok(false);
        }
        let told = self.tell(due).await;
        let published: Vec<i64> = told
            .iter()
            .filter_map(|told| if let Told::Published(position) = told { Some(*position) } else { None })
            .collect();
        bounded(mark_published(session, &published)).await?;
        metrics::counter!("outbox_published_total").increment(published.len() as u64);
        for one in &told {
            match one {
                Told::Published(_) => {}
                Told::Refused { position, rejections, event_id, reason } => {
                    let rejections = rejections.saturating_add(1);
                    let parks = rejections >= self.options.refusals_max;
                    bounded(mark_refused(
                        session,
                        *position,
                        rejections,
                        reason,
                        self.try_after(rejections),
                        parks,
                    ))
                    .await?;
                    metrics::counter!("outbox_rejected_total").increment(1);
                    if parks {
                        tracing::error!(event.id = event_id, reason, "event parked: the broker refuses it");
                    }
                }
                Told::Unknown(reason) => tracing::debug!(reason, "event to be published again"),
            }
        }
        if let Some(reason) = told.iter().find_map(|told| match told {
            Told::Unknown(reason) => Some(reason),
            _ => None,
        }) {
            metrics::counter!("outbox_unconfirmed_rounds_total").increment(1);
            tracing::warn!(reason, "events are published again, since whether they are is not known");
        }
        Ok(full && !published.is_empty())
    }

    /// Publishes events, those of one key one after the other: after one that is not published, the later ones of its key
    /// wait for another look.
    async fn tell(&self, due: Vec<Due>) -> Vec<Told> {
        let mut by_key: HashMap<String, Vec<Due>> = HashMap::new();
        let mut order = Vec::new();
        for one in due {
            let of_key = by_key.entry(one.event.key.clone()).or_insert_with(|| {
                order.push(one.event.key.clone());
                Vec::new()
            });
            of_key.push(one);
        }
        let deadline = Instant::now() + PUBLISH_WITHIN;
        let lines = order.into_iter().filter_map(|key| by_key.remove(&key));
        futures::stream::iter(lines.map(|line| self.tell_line(line, deadline)))
            .buffer_unordered(self.options.width.max(1))
            .collect::<Vec<_>>()
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    async fn tell_line(&self, line: Vec<Due>, deadline: Instant) -> Vec<Told> {
        let mut told = Vec::with_capacity(line.len());
        for Due { position, rejections, event } in line {
            let outcome = tokio::time::timeout_at(deadline, self.publisher.publish(&event)).await;
            let one = match outcome {
                Ok(Ok(())) => Told::Published(position),
                Ok(Err(PublishError::Refused { reason })) => {
                    Told::Refused { position, rejections, event_id: event.event_id, reason }
                }
                Ok(Err(PublishError::Unknown { reason })) => Told::Unknown(reason),
                Err(_) => Told::Unknown(format!("no confirmation within {PUBLISH_WITHIN:?}")),
            };
            let goes_on = matches!(one, Told::Published(_));
            told.push(one);
            if !goes_on {
                break;
            }
        }
        told
    }

    /// Pause before the next try of an event that was refused so often.
    fn try_after(&self, rejections: i32) -> Duration {
        let doubled = u32::try_from(rejections.saturating_sub(1)).unwrap_or(0).min(8);
        self.options.refused_pause.saturating_mul(2_u32.saturating_pow(doubled))
    }
}

/// What is to be published now, in the order it was written. What stands behind a parked event of its key, or behind one
/// that is tried again later, is not.
async fn due(session: &mut PgConnection, batch: i64) -> Result<Vec<Due>, OutboxError> {
    let rows = sqlx::query!(
        "SELECT o.position, o.event_id, o.kind, o.version, o.subject_key, o.sequence, o.body, o.appended_at, o.rejections
         FROM outbox o
         WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.next_attempt_at <= now()
           AND NOT EXISTS (
               SELECT FROM outbox e
               WHERE e.subject_key = o.subject_key AND e.sequence < o.sequence AND e.published_at IS NULL
                 AND (e.parked_at IS NOT NULL OR e.next_attempt_at > now()))
         ORDER BY o.position LIMIT $1",
        batch.max(1),
    )
    .fetch_all(session)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Due {
            position: row.position,
            rejections: row.rejections,
            event: Event {
                event_id: row.event_id,
                kind: row.kind,
                version: row.version,
                key: row.subject_key,
                sequence: row.sequence,
                appended_at: row.appended_at.to_jiff(),
                body: row.body,
            },
        })
        .collect())
}

async fn mark_published(session: &mut PgConnection, positions: &[i64]) -> Result<(), OutboxError> {
    if positions.is_empty() {
        return Ok(());
    }
    sqlx::query!("UPDATE outbox SET published_at = clock_timestamp() WHERE position = ANY($1)", positions)
        .execute(session)
        .await?;
    Ok(())
}

async fn mark_refused(
    session: &mut PgConnection,
    position: i64,
    rejections: i32,
    reason: &str,
    try_after: Duration,
    parks: bool,
) -> Result<(), OutboxError> {
    sqlx::query!(
        "UPDATE outbox
         SET rejections = $2, rejection = $3, next_attempt_at = clock_timestamp() + $4 * interval '1 second',
             parked_at = CASE WHEN $5 THEN clock_timestamp() END
         WHERE position = $1",
        position,
        rejections,
        reason,
        try_after.as_secs_f64(),
        parks,
    )
    .execute(session)
    .await?;
    Ok(())
}

/// A session that does not answer is lost.
async fn bounded<T>(rows: impl Future<Output = Result<T, OutboxError>>) -> Result<T, OutboxError> {
    let late = |_| OutboxError::Database(sqlx::Error::PoolTimedOut);
    tokio::time::timeout(ROWS_WITHIN, rows).await.map_err(late)?
}

/// A connection that hears nudges; without one the relay looks by its interval alone.
async fn listen(pool: &PgPool) -> Option<PgListener> {
    let mut listener = PgListener::connect_with(pool).await.ok()?;
    listener.listen(CHANNEL).await.ok()?;
    Some(listener)
}

/// Waits for a nudge; for ever when there is nobody to hear it from.
async fn nudged(nudges: &mut Option<PgListener>) {
    if let Some(listener) = nudges
        && listener.try_recv().await.is_ok()
    {
        return;
    }
    // The listener reconnects when it is asked again; until then the interval serves.
    std::future::pending::<()>().await;
}

async fn pause(length: Duration, stop: &CancellationToken) {
    let _ = stop.run_until_cancelled(tokio::time::sleep(length)).await;
}
