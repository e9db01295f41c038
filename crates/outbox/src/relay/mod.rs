//! Publishes stored events, in order per key, until the broker has confirmed them.
//!
//! The relay marks an event as published after the broker has confirmed it. It publishes an unconfirmed event again, without a
//! limit. It parks an event that the broker has rejected repeatedly; a parked event blocks only the later events of its key.
//! While the broker confirms nothing, the relay backs off and ignores wake-up notifications. An event waits for no slower
//! confirmation of another key: a round leaves it in flight after a moment. After a wake-up notification the relay gathers for a
//! moment, so that one read and one mark serve the events of several transactions.
//!
//! | file | content |
//! |---|---|
//! | `in_flight` | the events that are being published |
//! | `rows` | what is read and marked |

mod in_flight;
mod rows;

use std::pin::pin;
use std::time::Duration;

use crash_point::crash_point;
use postgres_kit::Pool;
use postgres_kit::wake_up::WakeUpListener;
use sqlx::PgConnection;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trace_kit::{Span, SpanKind, TraceParent, attribute, span};

use self::in_flight::{Ended, InFlight, PublishOutcome};
use self::rows::{DueRow, by_key, due, mark_published, mark_rejected};
use crate::backoff::Backoff;
use crate::leader_lock::{LeaderLock, with_timeout};
use crate::wake_up::CHANNEL;
use crate::{Event, OutboxError, PublishError, Publisher};

/// Time for the broker to confirm the events of one key. Much shorter than the idle timeout of the session with the leader lock.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which a round leaves unconfirmed events in flight and the next one reads what is due meanwhile. A fifth of the
/// 500 ms that S3.5 allows.
const ROUND_PAUSE: Duration = Duration::from_millis(100);
/// How long the relay waits for more events after a wake-up notification or a late confirmation. At 30 payments per second a round
/// publishes several events then, for the price of one. A tenth of the 500 ms that S3.5 allows; no payment waits for an event.
const GATHER_PAUSE: Duration = Duration::from_millis(50);

/// Longest pause between two requests for the leader lock: a lock that is lost must be taken again, however rarely the relay polls.
const LOCK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Options of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayOptions {
    /// Pause between two rounds without a wake-up notification, and between two requests for the leader lock, of which it is a second at
    /// most. Default 250 ms; S3.5 allows 500.
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
    pool: Pool,
    publisher: P,
    options: RelayOptions,
}

/// What the relay does after a round.
enum AfterRound {
    /// The next round follows at once: more events may be due, and the broker confirms events.
    Continue,
    /// It waits for a wake-up notification, a late confirmation or the poll interval.
    Wait,
    /// It waits until the pause of the back-off has passed.
    BackOff,
}

/// What the outcomes of a round say.
enum Recorded {
    /// No outcome is known yet.
    Nothing,
    /// The broker answered nothing that was sent since its last answer.
    NothingConfirmed,
    Confirmed {
        published: usize,
        /// The relay was probing the broker.
        was_probe: bool,
    },
}

impl<P: Publisher> Relay<P> {
    /// A relay; the tables must be migrated.
    #[must_use]
    pub fn new(pool: Pool, publisher: P, options: RelayOptions) -> Self {
        Self { pool, publisher, options }
    }

    /// Publishes until `stop`; waits while another relay holds the leader lock.
    pub async fn run(&self, stop: &CancellationToken) {
        let lock_pause = self.options.poll_interval.min(LOCK_PAUSE_MAX);
        while !stop.is_cancelled() {
            match LeaderLock::acquire(&self.pool, lock_pause, stop).await {
                Ok(Some(lock)) => {
                    tracing::info!("the outbox relay acquired the leader lock and publishes events");
                    self.publish_while_leader(lock, stop).await;
                }
                // Stopped.
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the outbox relay could not query the leader lock; it tries again"
                    );
                }
            }
            pause(lock_pause, stop).await;
        }
    }

    /// Publishes until `stop` or until the leader lock is lost.
    async fn publish_while_leader(&self, mut lock: LeaderLock, stop: &CancellationToken) {
        let mut wake_up = WakeUpListener::open(&self.pool, CHANNEL).await;
        let mut backoff = Backoff::new(self.options.backoff_pause, self.options.backoff_pause_max);
        let mut in_flight = InFlight::default();
        while !stop.is_cancelled() {
            match self.publish_round(lock.session(), &mut in_flight, &mut backoff).await {
                Ok(AfterRound::Continue) => {}
                Ok(AfterRound::Wait) => {
                    let is_woken = tokio::select! {
                        () = pause(self.options.poll_interval, stop) => false,
                        () = wake_up.wait(), if in_flight.len() < self.max_in_flight() => true,
                        // The next round records it.
                        () = in_flight.wait_for_one() => true,
                    };
                    if is_woken {
                        pause_without_wake_ups(GATHER_PAUSE, &mut wake_up, stop).await;
                    }
                }
                Ok(AfterRound::BackOff) => pause_without_wake_ups(backoff.pause(), &mut wake_up, stop).await,
                Err(error) => return report_lost_session(&error),
            }
        }
        let rest = in_flight.take_all().await;
        match self.record(lock.session(), &mut in_flight, rest, &mut backoff).await {
            Ok(_) => lock.release().await,
            Err(error) => report_lost_session(&error),
        }
    }

    fn max_in_flight(&self) -> usize {
        self.options.max_in_flight.max(1)
    }

    /// Publishes the due events of one round, and records the outcomes that are known at its end.
    ///
    /// A round ends when each of its events has an outcome, or after [`ROUND_PAUSE`] with the others still in flight: an event
    /// must not wait for the slowest confirmation of those before it. While the relay probes a broker that confirms nothing, a
    /// round has no such end before the first answer.
    async fn publish_round<'a>(
        &'a self,
        session: &mut PgConnection,
        in_flight: &mut InFlight<'a>,
        backoff: &mut Backoff,
    ) -> Result<AfterRound, OutboxError> {
        // First, because they may say that the broker is down.
        let late = in_flight.take_ended();
        if let Recorded::NothingConfirmed = self.record(session, in_flight, late, backoff).await? {
            return Ok(AfterRound::BackOff);
        }
        let batch = backoff.batch(self.options.batch);
        let capacity = self.max_in_flight().saturating_sub(in_flight.len());
        let keys = in_flight.keys();
        let due = if capacity == 0 { Vec::new() } else { with_timeout(due(session, batch, &keys)).await? };
        let is_full = i64::try_from(due.len()).is_ok_and(|count| count >= batch);
        let mut waiting = by_key(due).into_iter();
        let deadline = Instant::now() + PUBLISH_TIMEOUT;
        let mut end = pin!(tokio::time::sleep(ROUND_PAUSE));
        let mut outcomes = Vec::new();
        let mut of_round = 0_usize;
        loop {
            while in_flight.len() < self.max_in_flight()
                && let Some((key, rows)) = waiting.next()
            {
                in_flight.add(key, deadline, self.publish_key(rows, deadline));
                of_round += 1;
            }
            if of_round == 0 {
                break;
            }
            tokio::select! {
                biased;
                Some(ended) = in_flight.next() => {
                    of_round -= usize::from(ended.deadline == deadline);
                    outcomes.push(ended);
                }
                () = &mut end, if !backoff.is_probing() || outcomes.iter().any(Ended::is_answered) => break,
            }
        }
        let is_cut = waiting.len() > 0;
        self.record(session, in_flight, outcomes, backoff).await.map(|recorded| match recorded {
            Recorded::NothingConfirmed => AfterRound::BackOff,
            Recorded::Confirmed { published, was_probe }
                if was_probe || (is_full || is_cut) && published > 0 =>
            {
                AfterRound::Continue
            }
            Recorded::Nothing | Recorded::Confirmed { .. } => AfterRound::Wait,
        })
    }

    /// Records the outcomes of a round, and what they say about the broker.
    async fn record(
        &self,
        session: &mut PgConnection,
        in_flight: &mut InFlight<'_>,
        ended: Vec<Ended>,
        backoff: &mut Backoff,
    ) -> Result<Recorded, OutboxError> {
        if ended.is_empty() {
            return Ok(Recorded::Nothing);
        }
        // An event that was sent before the broker's last answer and has none says nothing about the broker.
        let is_later = |ended: &Ended| in_flight.last_answer.is_none_or(|answer| ended.started_at >= answer);
        let is_answered = ended.iter().any(Ended::is_answered);
        let is_unanswered = !is_answered && ended.iter().any(is_later);
        let keys: Vec<_> = ended.iter().map(|ended| ended.key.clone()).collect();
        let outcomes: Vec<_> = ended.into_iter().flat_map(|ended| ended.outcomes).collect();
        let published = record_published(session, &outcomes).await?;
        crash_point("after recording published events");
        self.record_rejected(session, &outcomes).await?;
        for key in &keys {
            in_flight.release(key);
        }
        report_unconfirmed(&outcomes);
        if is_unanswered {
            backoff.fail();
            return Ok(Recorded::NothingConfirmed);
        }
        if !is_answered {
            return Ok(Recorded::Nothing);
        }
        in_flight.last_answer = Some(Instant::now());
        let was_probe = backoff.is_probing();
        backoff.reset();
        Ok(Recorded::Confirmed { published, was_probe })
    }

    /// Publishes the events of one key, one after the other, up to the first one that is not published.
    async fn publish_key(&self, rows: Vec<DueRow>, deadline: Instant) -> Vec<PublishOutcome> {
        let mut outcomes = Vec::with_capacity(rows.len());
        for DueRow { position, rejections, event, trace_parent } in rows {
            // A timeout polls the publisher once even after the deadline, which would send an event without waiting for its
            // confirmation.
            if Instant::now() >= deadline {
                break;
            }
            crash_point("before publishing an event");
            let span = publish_span(&event, trace_parent.as_ref());
            let result = tokio::time::timeout_at(deadline, span.run(self.publisher.publish(&event))).await;
            if !matches!(result, Ok(Ok(()))) {
                span.fail("not published");
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
                    let reason = format!("no confirmation within {PUBLISH_TIMEOUT:?}");
                    PublishOutcome::Unconfirmed { event_id, reason }
                }
            };
            let is_published = matches!(outcome, PublishOutcome::Published { .. });
            if is_published {
                crash_point("after publishing an event");
            }
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

fn report_lost_session(error: &OutboxError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the outbox relay gave up the leader lock because its database session failed; it tries to become leader again"
    );
}

fn publish_span(event: &Event, trace_parent: Option<&TraceParent>) -> Span {
    span(SpanKind::Producer, format!("publish event: {}", event.kind))
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

/// Pauses and receives the notifications meanwhile, so that none is left to wake the relay after the pause.
async fn pause_without_wake_ups(length: Duration, wake_up: &mut WakeUpListener, stop: &CancellationToken) {
    let ignore_wake_ups = async {
        loop {
            wake_up.wait().await;
        }
    };
    tokio::select! {
        () = pause(length, stop) => {}
        () = ignore_wake_ups => {}
    }
}

async fn pause(length: Duration, stop: &CancellationToken) {
    let _ = stop.run_until_cancelled(tokio::time::sleep(length)).await;
}
