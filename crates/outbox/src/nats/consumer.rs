//! Taking events in: a durable pull consumer for each lane. The broker brings the events of a key in order, save what it brings
//! again or brings to two processes; where one comes before its turn, it waits until the one before it had its effect or was
//! parked. What waits so keeps nothing else back.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::message::{AckKind, Message};
use futures::StreamExt as _;
use futures::future::join_all;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::{Broker, BrokerError, BrokerOptions, LANES};
use crate::Event;
use crate::intake::{self, Effect, EffectError, ParkedDelivery, Taken, Turn};

/// Pause before the broker is asked again.
const PAUSE: Duration = Duration::from_millis(500);
/// How often the broker says that it is there while nothing comes; two that are missing end a pull.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long one pull is open.
const PULL: Duration = Duration::from_secs(10);
/// Messages of a lane that are delivered and not yet confirmed, in all processes. Those that wait for their turn, and those whose
/// consumer died, count until they come again: there must be room beside them, or one key would stop its lane.
const UNDER_WAY: i64 = 256;
/// Events whose coming too early is remembered: all that wait for their turn, and as many that others have taken in since.
const EARLY_MAX: usize = 2 * LANES as usize * UNDER_WAY as usize;
/// Messages of one pull. What waits in our memory is on the clock of `ack_wait`.
const PULLED: usize = 4;
/// Longest pause before a message is delivered again.
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// How a consumer works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerOptions {
    /// Its name, also of its marks in the database. For ever: another name takes everything in anew.
    pub name: String,
    /// How long an effect may take until the broker delivers again, also after a crash. Longer than the database lets a
    /// transaction take. Default 15 s.
    pub ack_wait: Duration,
    /// Deliveries of a message that cannot be taken in, until it is parked; at least 1. Default 5.
    pub deliveries_max: i64,
    /// Pause before it is delivered again; doubled each time, 5 s at most. Default 200 ms.
    pub again_after: Duration,
    /// Times an event is put off because an earlier one of its key was not taken in; then it is taken in before that. With the
    /// pauses between them this must be longer than `ack_wait`, in which the one before it comes again. Default 20: about 80 s.
    pub turns_max: u32,
}

impl ConsumerOptions {
    /// The defaults under a name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            ack_wait: Duration::from_secs(15),
            deliveries_max: 5,
            again_after: Duration::from_millis(200),
            turns_max: 20,
        }
    }
}

/// Takes events in, each one once. Any number of processes may, under one name.
#[derive(Debug)]
pub struct Consumer<E> {
    broker: Broker,
    pool: PgPool,
    effect: E,
    options: ConsumerOptions,
    /// How often each event that is under way here came too early. A delivery that failed for another reason does not count:
    /// after an outage of the database nothing may overtake what waited as long.
    early: Mutex<HashMap<String, u32>>,
}

impl<E: Effect> Consumer<E> {
    /// A consumer with its effect; the tables must be migrated.
    #[must_use]
    pub fn new(broker: Broker, pool: PgPool, effect: E, options: ConsumerOptions) -> Self {
        Self { broker, pool, effect, options, early: Mutex::default() }
    }

    /// Takes in until `stop`; what is under way then is finished.
    pub async fn run(&self, stop: &CancellationToken) {
        join_all((0..LANES).map(|lane| self.keep_lane(lane, stop))).await;
    }

    async fn keep_lane(&self, lane: u8, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            if let Err(error) = self.take_lane(lane, stop).await {
                tracing::warn!(lane, error = &error as &dyn std::error::Error, "no events come in");
            }
            let _ = stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
        }
    }

    /// Takes a lane in until `stop` or until the broker is gone.
    async fn take_lane(&self, lane: u8, stop: &CancellationToken) -> Result<(), BrokerError> {
        let name = place_name(&self.options.name, lane);
        let lost = |source: Box<dyn std::error::Error + Send + Sync>| BrokerError::Consumer {
            consumer: name.clone(),
            source,
        };
        let config = place(&self.broker.options, &self.options, lane);
        let stream = self.broker.stream().await?;
        let consumer = stream.create_consumer(config).await.map_err(|error| lost(error.into()))?;
        let messages =
            consumer.stream().max_messages_per_batch(PULLED).heartbeat(HEARTBEAT).expires(PULL).messages();
        let mut messages = messages.await.map_err(|error| lost(error.into()))?;
        while let Some(Some(message)) = stop.run_until_cancelled(messages.next()).await {
            self.take(&message.map_err(|error| lost(error.into()))?).await;
        }
        Ok(())
    }

    /// Takes one message in and tells the broker. Where that cannot be told it comes again, and is known by its id.
    async fn take(&self, message: &Message) {
        let told = match serde_json::from_slice::<Event>(&message.payload) {
            // PostgreSQL's text holds no NUL, and would refuse it for ever.
            Ok(event)
                if [&event.event_id, &event.kind, &event.key].iter().any(|text| text.contains('\0')) =>
            {
                self.poison(message, None, "there is a NUL in its id, kind or key".into()).await
            }
            Ok(event) => self.take_event(message, &event).await,
            Err(error) => self.poison(message, None, format!("this is no event: {error}")).await,
        };
        if let Err(error) = message.ack_with(told).await {
            tracing::debug!(error = &*error as &dyn std::error::Error, "the broker was not told");
        }
    }

    /// Takes an event in; what the broker is to be told.
    async fn take_event(&self, message: &Message, event: &Event) -> AckKind {
        let deliveries = deliveries(message);
        let early = self.early().get(&event.event_id).copied().unwrap_or(0);
        let turn = if early < self.options.turns_max { Turn::Kept } else { Turn::Waived };
        let again = AckKind::Nak(Some(self.again_after(deliveries)));
        let taken_as = |what: &'static str| {
            metrics::counter!("events_consumed_total", "consumer" => self.options.name.clone(), "as" => what)
                .increment(1);
            AckKind::Ack
        };
        match intake::take_in(&self.pool, &self.options.name, event, turn, &self.effect).await {
            Ok(Taken::Now) => {
                if turn == Turn::Waived {
                    tracing::warn!(
                        event.id = event.event_id,
                        "event taken in, perhaps before an earlier one"
                    );
                }
                self.early().remove(&event.event_id);
                taken_as("now")
            }
            Ok(Taken::Before) => taken_as("before"),
            Ok(Taken::TooEarly) => {
                metrics::counter!("events_out_of_order_total", "consumer" => self.options.name.clone())
                    .increment(1);
                tracing::info!(event.id = event.event_id, deliveries, "event waits for the one before it");
                self.note_early(&event.event_id);
                again
            }
            Err(EffectError::Poison(reason)) => self.poison(message, Some(event), reason).await,
            Err(EffectError::Unavailable(error)) => {
                metrics::counter!("events_deferred_total", "consumer" => self.options.name.clone())
                    .increment(1);
                let error = &*error as &dyn std::error::Error;
                tracing::warn!(event.id = event.event_id, error, "event put off");
                again
            }
        }
    }

    fn early(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was brought to another process in the end stays behind here; when that is much, everybody's count begins anew.
    fn note_early(&self, event_id: &str) {
        let mut early = self.early();
        if early.len() >= EARLY_MAX {
            early.clear();
        }
        *early.entry(event_id.to_owned()).or_default() += 1;
    }

    /// A message that cannot be taken in: again, until it is parked in our database and not before.
    async fn poison(&self, message: &Message, event: Option<&Event>, reason: String) -> AckKind {
        let event_id = event.map(|event| event.event_id.clone()).or_else(|| message_id(message));
        let deliveries = deliveries(message);
        let again = AckKind::Nak(Some(self.again_after(deliveries)));
        if deliveries < self.options.deliveries_max {
            tracing::warn!(event.id = event_id, deliveries, reason, "event cannot be taken in");
            return again;
        }
        let Ok(info) = message.info() else { return again };
        let parked = ParkedDelivery {
            consumer: self.options.name.clone(),
            stream: info.stream.to_owned(),
            stream_sequence: i64::try_from(info.stream_sequence).unwrap_or(i64::MAX),
            subject: message.subject.to_string(),
            event_id,
            payload: message.payload.to_vec(),
            reason,
            deliveries,
        };
        match intake::park(&self.pool, &parked, event).await {
            Ok(()) => {
                metrics::counter!("events_parked_total", "consumer" => self.options.name.clone())
                    .increment(1);
                let ParkedDelivery { event_id, reason, .. } = parked;
                tracing::error!(event.id = event_id, deliveries, reason, "message parked");
                AckKind::Term
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a message could not be parked");
                again
            }
        }
    }

    fn again_after(&self, deliveries: i64) -> Duration {
        let doubled = u32::try_from(deliveries.saturating_sub(1)).unwrap_or(0).min(8);
        self.options.again_after.saturating_mul(2_u32.saturating_pow(doubled)).min(AGAIN_MAX)
    }
}

/// What the broker calls a consumer's place in a lane.
fn place_name(consumer: &str, lane: u8) -> String {
    format!("{consumer}-{lane}")
}

/// A consumer's place in a lane, which the broker keeps whether the consumer runs or not.
fn place(broker: &BrokerOptions, options: &ConsumerOptions, lane: u8) -> pull::Config {
    pull::Config {
        durable_name: Some(place_name(&options.name, lane)),
        filter_subject: format!("{}.{lane}.*", broker.subjects),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: options.ack_wait,
        // Without end: how often is our own decision.
        max_deliver: -1,
        max_ack_pending: UNDER_WAY,
        ..pull::Config::default()
    }
}

/// The id that it was published under: the event's, also where nothing else can be read.
fn message_id(message: &Message) -> Option<String> {
    let id = message.headers.as_ref()?.get(NATS_MESSAGE_ID)?;
    Some(id.as_str().to_owned())
}

/// Times the broker has delivered the message, this time included.
fn deliveries(message: &Message) -> i64 {
    message.info().map_or(1, |info| info.delivered)
}
