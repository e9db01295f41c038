//! Publishes stored events, in order per key, until the broker has confirmed them.
//!
//! The relay marks an event as published after the broker has confirmed it. It publishes an unconfirmed event again, without a
//! limit. It parks an event that the broker has rejected repeatedly; a parked event blocks only the later events of its key.
//! While the broker confirms nothing, the relay backs off and ignores wake-up notifications.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt as _;
use postgres_kit::wake_up::WakeUpListener;
use sqlx::{PgConnection, PgPool};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trace_kit::{Span, SpanKind, TraceParent, attribute, span};

use crate::backoff::Backoff;
use crate::leader_lock::LeaderLock;
use crate::wake_up::CHANNEL;
use crate::{Event, OutboxError, PublishError, Publisher};

/// Time in which one round publishes; the next round continues. Much shorter than the idle timeout of the session with the
/// leader lock.
const ROUND_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of each query of a round.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayOptions {
    /// Pause between two rounds without a wake-up notification, and between two requests for the leader lock. Default 250 ms;
    /// S3.5 allows 500.
    pub poll_interval: Duration,
    /// Upper bound of events of one round, at least 1. Default 256.
    pub batch: i64,
    /// In-flight limit: keys whose events are published at the same time, at least 1. Default 32.
    pub max_in_flight: usize,
    /// Rejections after which an event is parked, at least 1. Default 5.
    pub rejections_max: i32,
    /// Pause after the first rejection; doubled after each further one. Default 200 ms.
    pub rejection_pause: Duration,
    /// Pause after a round in which the broker confirmed nothing; doubled after each further one. Default 100 ms.
    pub backoff_pause: Duration,
    /// Longest such pause, at most 5 s: the database ends a session that is idle for longer than this and a round. Default 5 s.
    pub backoff_pause_max: Duration,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_millis(250),
            batch: 256,
            max_in_flight: 32,
            rejections_max: 5,
            rejection_pause: Duration::from_millis(200),
            backoff_pause: Duration::from_millis(100),
            backoff_pause_max: Duration::from_secs(5),
        }
    }
}

/// The relay between the table and a broker. Any number may run; the one with the leader lock publishes, and another takes
/// over when its process ends.
#[derive(Debug)]
pub struct Relay<P> {
    pool: PgPool,
    publisher: P,
    options: RelayOptions,
}

/// An event that is due to be published.
struct DueRow {
    position: i64,
    rejections: i32,
    event: Event,
    trace_parent: Option<TraceParent>,
}

/// What the relay does after a round.
enum AfterRound {
    /// The next round follows at once: more events may be due, and the broker confirms events.
    Continue,
    /// It waits for a wake-up notification or the poll interval.
    Wait,
    /// It waits until the pause of the back-off has passed.
    BackOff,
}

/// Outcome of publishing an event.
enum PublishOutcome {
    Published { position: i64 },
    Rejected { position: i64, rejections: i32, event_id: String, reason: String },
    Unconfirmed { event_id: String, reason: String },
}

impl<P: Publisher> Relay<P> {
    /// A relay; the tables must be migrated.
    #[must_use]
    pub fn new(pool: PgPool, publisher: P, options: RelayOptions) -> Self {
        Self { pool, publisher, options }
    }

    /// Publishes until `stop`; waits while another relay holds the leader lock.
    pub async fn run(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            match LeaderLock::try_acquire(&self.pool).await {
                Ok(Some(lock)) => {
                    tracing::info!("the outbox relay acquired the leader lock and publishes events");
                    self.publish_while_leader(lock, stop).await;
                }
                Ok(None) => tracing::debug!(
                    "the outbox relay waits because the relay of another process holds the leader lock"
                ),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the outbox relay could not query the leader lock; it tries again"
                    );
                }
            }
            pause(self.options.poll_interval, stop).await;
        }
    }

    /// Publishes until `stop` or until the leader lock is lost.
    async fn publish_while_leader(&self, mut lock: LeaderLock, stop: &CancellationToken) {
        let mut wake_up = WakeUpListener::open(&self.pool, CHANNEL).await;
        let mut backoff = Backoff::new(self.options.backoff_pause, self.options.backoff_pause_max);
        while !stop.is_cancelled() {
            match self.publish_round(lock.session(), &mut backoff).await {
                Ok(AfterRound::Continue) => {}
                Ok(AfterRound::Wait) => {
                    tokio::select! {
                        () = pause(self.options.poll_interval, stop) => {}
                        () = wake_up.wait() => {}
                    }
                }
                Ok(AfterRound::BackOff) => {
                    // The notifications are received, so that none is left to wake the relay after the pause.
                    let ignore_wake_ups = async {
                        loop {
                            wake_up.wait().await;
                        }
                    };
                    tokio::select! {
                        () = pause(backoff.pause(), stop) => {}
                        () = ignore_wake_ups => {}
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the outbox relay gave up the leader lock because its database session failed; it tries to become leader again"
                    );
                    return;
                }
            }
        }
        lock.release().await;
    }

    /// Publishes the due events of one round and records the outcomes.
    async fn publish_round(
        &self,
        session: &mut PgConnection,
        backoff: &mut Backoff,
    ) -> Result<AfterRound, OutboxError> {
        let batch = backoff.batch(self.options.batch);
        let due = with_timeout(due(session, batch)).await?;
        let is_full = i64::try_from(due.len()).is_ok_and(|count| count >= batch);
        if due.is_empty() {
            return Ok(AfterRound::Wait);
        }
        let outcomes = self.publish_all(due).await;
        let published = record_published(session, &outcomes).await?;
        self.record_rejected(session, &outcomes).await?;
        report_unconfirmed(&outcomes);
        if outcomes.iter().all(|outcome| matches!(outcome, PublishOutcome::Unconfirmed { .. })) {
            backoff.fail();
            return Ok(AfterRound::BackOff);
        }
        let was_probe = backoff.is_probing();
        backoff.reset();
        Ok(if was_probe || is_full && published > 0 { AfterRound::Continue } else { AfterRound::Wait })
    }

    /// Publishes events; the events of one key one after the other. After an event that was not published, the later events of
    /// its key wait for another round.
    async fn publish_all(&self, due: Vec<DueRow>) -> Vec<PublishOutcome> {
        let mut by_key: HashMap<String, Vec<DueRow>> = HashMap::new();
        let mut keys = Vec::new();
        for row in due {
            let of_key = by_key.entry(row.event.key.clone()).or_insert_with(|| {
                keys.push(row.event.key.clone());
                Vec::new()
            });
            of_key.push(row);
        }
        let deadline = Instant::now() + ROUND_TIMEOUT;
        let rows_by_key = keys.into_iter().filter_map(|key| by_key.remove(&key));
        futures::stream::iter(rows_by_key.map(|rows| self.publish_key(rows, deadline)))
            .buffer_unordered(self.options.max_in_flight.max(1))
            .collect::<Vec<_>>()
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    /// Publishes the events of one key, up to the first one that is not published.
    async fn publish_key(&self, rows: Vec<DueRow>, deadline: Instant) -> Vec<PublishOutcome> {
        let mut outcomes = Vec::with_capacity(rows.len());
        for DueRow { position, rejections, event, trace_parent } in rows {
            // A timeout polls the publisher once even after the deadline, which would send an event without waiting for its
            // confirmation.
            if Instant::now() >= deadline {
                break;
            }
            let span = publish_span(&event, trace_parent.as_ref());
            let result = tokio::time::timeout_at(deadline, span.run(self.publisher.publish(&event))).await;
            if !matches!(result, Ok(Ok(()))) {
                span.fail("the broker did not confirm the event");
            }
            drop(span);
            let event_id = event.event_id;
            let outcome = match result {
                Ok(Ok(())) => PublishOutcome::Published { position },
                Ok(Err(PublishError::Rejected { reason })) => {
                    PublishOutcome::Rejected { position, rejections, event_id, reason }
                }
                Ok(Err(PublishError::Unconfirmed { reason })) => {
                    PublishOutcome::Unconfirmed { event_id, reason }
                }
                Err(_) => {
                    let reason = format!("no confirmation within {ROUND_TIMEOUT:?}");
                    PublishOutcome::Unconfirmed { event_id, reason }
                }
            };
            let is_published = matches!(outcome, PublishOutcome::Published { .. });
            outcomes.push(outcome);
            if !is_published {
                break;
            }
        }
        outcomes
    }

    /// Schedules rejected events for another attempt, or parks them.
    async fn record_rejected(
        &self,
        session: &mut PgConnection,
        outcomes: &[PublishOutcome],
    ) -> Result<(), OutboxError> {
        for outcome in outcomes {
            let PublishOutcome::Rejected { position, rejections, event_id, reason } = outcome else {
                continue;
            };
            let rejections = rejections.saturating_add(1);
            let is_parked = rejections >= self.options.rejections_max;
            let delay = self.delay(rejections);
            with_timeout(mark_rejected(session, *position, rejections, reason, delay, is_parked)).await?;
            metrics::counter!("outbox_rejected_total").increment(1);
            if is_parked {
                tracing::error!(
                    event.id = event_id,
                    rejections,
                    reason,
                    "the outbox relay parked an event that the broker rejected repeatedly; an operator must retry the event (payctl events retry)"
                );
            }
        }
        Ok(())
    }

    /// Pause before the next attempt of an event with this number of rejections.
    fn delay(&self, rejections: i32) -> Duration {
        let doublings = u32::try_from(rejections.saturating_sub(1)).unwrap_or(0).min(8);
        self.options.rejection_pause.saturating_mul(2_u32.saturating_pow(doublings))
    }
}

fn publish_span(event: &Event, trace_parent: Option<&TraceParent>) -> Span {
    span(SpanKind::Producer, "publish event")
        .child_of(trace_parent)
        .with(attribute::MESSAGING_SYSTEM, "nats")
        .with(attribute::MESSAGE_ID, event.event_id.clone())
        .start()
}

/// Marks the published events; returns their number.
async fn record_published(
    session: &mut PgConnection,
    outcomes: &[PublishOutcome],
) -> Result<usize, OutboxError> {
    let positions: Vec<i64> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            PublishOutcome::Published { position } => Some(*position),
            _ => None,
        })
        .collect();
    with_timeout(mark_published(session, &positions)).await?;
    metrics::counter!("outbox_published_total").increment(positions.len() as u64);
    Ok(positions.len())
}

/// Logs and counts unconfirmed events. Their rows are unchanged, so the next round publishes them again.
fn report_unconfirmed(outcomes: &[PublishOutcome]) {
    let mut unconfirmed = 0_usize;
    let mut first_reason = None;
    for outcome in outcomes {
        let PublishOutcome::Unconfirmed { event_id, reason } = outcome else { continue };
        tracing::debug!(
            event.id = event_id,
            reason,
            "the broker did not confirm an event; the outbox relay publishes the event again"
        );
        unconfirmed += 1;
        first_reason.get_or_insert(reason);
    }
    if let Some(reason) = first_reason {
        metrics::counter!("outbox_unconfirmed_rounds_total").increment(1);
        tracing::warn!(
            reason,
            "the broker did not confirm {unconfirmed} published events; the outbox relay publishes them again"
        );
    }
}

/// Events to publish now, in the order of their positions: without the events behind a parked event of their key, and without
/// those behind an event whose next attempt is later. Only rejected events are looked up for this, in an index of their own,
/// so one read costs the same however many events wait.
async fn due(session: &mut PgConnection, batch: i64) -> Result<Vec<DueRow>, OutboxError> {
    let rows = sqlx::query!(
        "SELECT o.position, o.event_id, o.kind, o.version, o.subject_key, o.sequence, o.body, o.appended_at, o.rejections,
                o.trace_parent
         FROM outbox o
         WHERE o.published_at IS NULL AND o.parked_at IS NULL AND (o.rejections = 0 OR o.next_attempt_at <= now())
           AND NOT EXISTS (
               SELECT FROM outbox e
               WHERE e.subject_key = o.subject_key AND e.sequence < o.sequence AND e.rejections > 0
                 AND (e.parked_at IS NOT NULL OR e.next_attempt_at > now()))
         ORDER BY o.position LIMIT $1",
        batch.max(1),
    )
    .fetch_all(session)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| DueRow {
            position: row.position,
            rejections: row.rejections,
            trace_parent: row.trace_parent.as_deref().and_then(TraceParent::parse),
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
    sqlx::query!(
        "UPDATE outbox SET published_at = clock_timestamp(), rejections = 0 WHERE position = ANY($1)",
        positions
    )
    .execute(session)
    .await?;
    Ok(())
}

async fn mark_rejected(
    session: &mut PgConnection,
    position: i64,
    rejections: i32,
    reason: &str,
    delay: Duration,
    is_parked: bool,
) -> Result<(), OutboxError> {
    sqlx::query!(
        "UPDATE outbox
         SET rejections = $2, rejection = $3, next_attempt_at = clock_timestamp() + $4 * interval '1 second',
             parked_at = CASE WHEN $5 THEN clock_timestamp() END
         WHERE position = $1",
        position,
        rejections,
        reason,
        delay.as_secs_f64(),
        is_parked,
    )
    .execute(session)
    .await?;
    Ok(())
}

/// Limits the duration of a query. The session is unusable after a timeout.
async fn with_timeout<T>(query: impl Future<Output = Result<T, OutboxError>>) -> Result<T, OutboxError> {
    let timed_out = |_| OutboxError::Database(sqlx::Error::PoolTimedOut);
    tokio::time::timeout(QUERY_TIMEOUT, query).await.map_err(timed_out)?
}

async fn pause(length: Duration, stop: &CancellationToken) {
    let _ = stop.run_until_cancelled(tokio::time::sleep(length)).await;
}
