//! Consumes events: a durable pull consumer at the broker, and a batch worker that consumes what arrives together.
//!
//! The broker delivers the events of a key in order, except for redeliveries and deliveries to two processes. An event that
//! arrives before an earlier one of its key waits until the earlier one was processed or parked. Other keys do not wait.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::message::{AckKind, Message};
use futures::StreamExt as _;
use jiff::Timestamp;
use postgres_kit::Pool;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use trace_kit::{Span, SpanKind, TRACEPARENT, TraceParent, attribute, set_on_current, span};

use super::{Broker, BrokerError};
use crate::Event;
use crate::consume::{
    self, ConsumeOutcome, EffectError, EventEffect, KeyOrder, ParkedDelivery, ReceivedEvent,
};

/// Pause before the next request after the broker failed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Interval of the broker's heartbeats while there are no messages; a pull ends after two missing ones.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long one pull waits for messages.
const PULL_EXPIRY: Duration = Duration::from_secs(10);
/// In-flight limit: unacknowledged messages in all processes. It includes the messages of a process that died and messages that
/// wait for an earlier event, until their redelivery, so it must leave capacity for other keys.
const ACK_PENDING_MAX: i64 = 2_048;
/// Events whose out-of-order deliveries are counted: every event in flight, and as many that other processes have consumed
/// since.
const OUT_OF_ORDER_TRACKED_MAX: usize = 2 * ACK_PENDING_MAX as usize;
/// Number of messages that one pull requests. The next one is requested when half of them have arrived, so up to one and a half
/// times as many wait in the memory of this process, and a batch more in the queue. `ack_wait` also elapses for them. It is long
/// enough for the two batches before theirs; where the database takes longer, the broker redelivers them, as duplicates.
const PULL_MAX: usize = 128;
/// Upper bound of events of one transaction.
const BATCH_MAX: usize = 256;
/// How long the batch worker waits for more events after the first one of a batch. At 30 payments per second a batch has several
/// events then, and a transaction for several events costs little more than one for a single event. Nobody waits for an event
/// to be consumed: a customer does not notice that a notification is later by this.
const GATHER_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause before a redelivery.
const REDELIVERY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Options of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerOptions {
    /// Name at the broker and of the marks in the database. It must never change: a renamed consumer consumes every event
    /// again.
    pub name: String,
    /// Time after which the broker redelivers a message without an acknowledgement. Longer than a transaction of the effect can
    /// take. Default 15 s.
    pub ack_wait: Duration,
    /// Deliveries after which a message that cannot be consumed is parked, at least 1. Default 5.
    pub deliveries_max: i64,
    /// Pause before the first redelivery; doubled for each further one, up to 5 s. Default 200 ms.
    pub redelivery_pause: Duration,
    /// Out-of-order deliveries of an event after which the event is consumed before the earlier one of its key. The pauses
    /// between them must be longer than `ack_wait`, after which the earlier event is redelivered. Default 20: about 80 s.
    pub out_of_order_max: u32,
}

impl ConsumerOptions {
    /// The default options of a consumer with this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            ack_wait: Duration::from_secs(15),
            deliveries_max: 5,
            redelivery_pause: Duration::from_millis(200),
            out_of_order_max: 20,
        }
    }
}

/// Consumes each event once. Any number of processes may run a consumer under one name.
#[derive(Debug)]
pub struct Consumer<E> {
    broker: Broker,
    pool: Pool,
    effect: E,
    options: ConsumerOptions,
    /// Out-of-order deliveries to this process by event id. Deliveries that failed for another reason do not count: after an
    /// outage of the database no event may overtake an earlier one that failed as long.
    out_of_order: Mutex<HashMap<String, u32>>,
}

impl<E: EventEffect> Consumer<E> {
    /// A consumer with its effect; the tables must be migrated.
    #[must_use]
    pub fn new(broker: Broker, pool: Pool, effect: E, options: ConsumerOptions) -> Self {
        Self { broker, pool, effect, options, out_of_order: Mutex::default() }
    }

    /// Consumes until `stop`; messages in progress are completed.
    pub async fn run(&self, stop: &CancellationToken) {
        let (queue, received) = mpsc::channel(BATCH_MAX);
        tokio::join!(self.receive(queue, stop), self.consume_batches(received));
    }

    /// Queues messages until `stop`; retries when the broker fails.
    async fn receive(&self, queue: mpsc::Sender<Message>, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            if let Err(error) = self.receive_messages(&queue, stop).await {
                tracing::warn!(
                    consumer = self.options.name,
                    error = &error as &dyn std::error::Error,
                    "the event consumer could not receive events from the broker; it tries again"
                );
            }
            let _ = stop.run_until_cancelled(tokio::time::sleep(RETRY_PAUSE)).await;
        }
    }

    /// Queues messages until `stop` or until the broker fails.
    async fn receive_messages(
        &self,
        queue: &mpsc::Sender<Message>,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| BrokerError::Consumer {
            consumer: self.options.name.clone(),
            source,
        };
        let stream = self.broker.stream().await?;
        let consumer = stream
            .create_consumer(durable_config(&self.options))
            .await
            .map_err(|error| failed(error.into()))?;
        let messages = consumer
            .stream()
            .max_messages_per_batch(PULL_MAX)
            .heartbeat(HEARTBEAT)
            .expires(PULL_EXPIRY)
            .messages();
        let mut messages = messages.await.map_err(|error| failed(error.into()))?;
        while let Some(Some(message)) = stop.run_until_cancelled(messages.next()).await {
            // The batch worker receives until the queue is dropped.
            let _ = queue.send(message.map_err(|error| failed(error.into()))?).await;
        }
        Ok(())
    }

    /// Consumes queued messages until the queue is dropped and empty.
    async fn consume_batches(&self, mut queue: mpsc::Receiver<Message>) {
        while let Some(first) = queue.recv().await {
            tokio::time::sleep(GATHER_PAUSE).await;
            let mut messages = vec![first];
            while messages.len() < BATCH_MAX
                && let Ok(message) = queue.try_recv()
            {
                messages.push(message);
            }
            self.consume_messages(messages).await;
        }
    }

    /// Consumes messages and acknowledges them. Without an acknowledgement the broker redelivers a message, and its event is a
    /// duplicate.
    async fn consume_messages(&self, messages: Vec<Message>) {
        let (mut received, mut deliveries) = (Vec::new(), Vec::new());
        for message in messages {
            match parse(&message) {
                Ok(event) => {
                    let delivery = self.start_delivery(message, &event);
                    received.push(ReceivedEvent {
                        order: if delivery.is_waived { KeyOrder::Waived } else { KeyOrder::Required },
                        trace_parent: delivery.span.trace_parent(),
                        event,
                    });
                    deliveries.push(delivery);
                }
                Err(reason) => {
                    let ack = self.reject(&message, None, reason).await;
                    self.acknowledge(&message, ack).await;
                }
            }
        }
        let results = consume::consume(&self.pool, &self.options.name, &received, &self.effect).await;
        for ((delivery, received), result) in deliveries.into_iter().zip(&received).zip(results) {
            let ack = delivery.span.run(self.record(&delivery, &received.event, result)).await;
            if !matches!(ack, AckKind::Ack) {
                delivery.span.fail("not consumed");
            }
            self.acknowledge(&delivery.message, ack).await;
        }
    }

    /// Starts the consumption of an event, in the trace of the one who published it.
    fn start_delivery(&self, message: Message, event: &Event) -> Delivery {
        let span = span(SpanKind::Consumer, format!("consume event: {}", self.options.name))
            .child_of(trace_parent(&message).as_ref())
            .with(attribute::MESSAGING_SYSTEM, "nats")
            .with(attribute::MESSAGE_ID, event.event_id.clone())
            .with(attribute::ATTEMPT, deliveries(&message))
            .start();
        let out_of_order = self.out_of_order().get(&event.event_id).copied().unwrap_or(0);
        let is_waived = out_of_order >= self.options.out_of_order_max;
        Delivery { message, span, out_of_order, is_waived }
    }

    async fn acknowledge(&self, message: &Message, ack: AckKind) {
        if let Err(error) = message.ack_with(ack).await {
            tracing::debug!(
                consumer = self.options.name,
                error = &*error as &dyn std::error::Error,
                "the event consumer could not acknowledge a message; the broker delivers the message again"
            );
        }
    }

    /// Counts and logs the result of an event; returns the acknowledgement for the broker.
    async fn record(
        &self,
        delivery: &Delivery,
        event: &Event,
        result: Result<ConsumeOutcome, EffectError>,
    ) -> AckKind {
        let Delivery { message, out_of_order, is_waived, .. } = delivery;
        let deliveries = deliveries(message);
        let redeliver = AckKind::Nak(Some(self.redelivery_pause(deliveries)));
        let consumer = &self.options.name;
        match result {
            Ok(ConsumeOutcome::Processed) => {
                if *is_waived {
                    tracing::warn!(
                        consumer,
                        event.id = event.event_id,
                        out_of_order,
                        "the event consumer processed an event, possibly before an earlier event of the same key that did not arrive in time"
                    );
                }
                self.out_of_order().remove(&event.event_id);
                set_on_current(attribute::REPLAYED, false);
                self.count_consumed("processed");
                AckKind::Ack
            }
            Ok(ConsumeOutcome::Duplicate) => {
                set_on_current(attribute::REPLAYED, true);
                self.count_consumed("duplicate");
                AckKind::Ack
            }
            Ok(ConsumeOutcome::OutOfOrder) => {
                metrics::counter!("events_out_of_order_total", "consumer" => consumer.clone()).increment(1);
                tracing::info!(
                    consumer,
                    event.id = event.event_id,
                    deliveries,
                    "the event consumer deferred an event because an earlier event of the same key is not consumed yet; the broker delivers the event again"
                );
                self.count_out_of_order(&event.event_id);
                redeliver
            }
            Err(EffectError::Poison(reason)) => self.reject(message, Some(event), reason).await,
            Err(EffectError::Unavailable(error)) => {
                metrics::counter!("events_deferred_total", "consumer" => consumer.clone()).increment(1);
                tracing::warn!(
                    consumer,
                    event.id = event.event_id,
                    error = &*error as &dyn std::error::Error,
                    "the event consumer could not write the effect of an event; the broker delivers the event again"
                );
                redeliver
            }
        }
    }

    fn count_consumed(&self, outcome: &'static str) {
        let consumer = self.options.name.clone();
        metrics::counter!("events_consumed_total", "consumer" => consumer, "outcome" => outcome).increment(1);
    }

    fn out_of_order(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.out_of_order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an out-of-order delivery. Events that another process consumed later stay in the map; a full map is cleared,
    /// which restarts every count.
    fn count_out_of_order(&self, event_id: &str) {
        let mut out_of_order = self.out_of_order();
        if out_of_order.len() >= OUT_OF_ORDER_TRACKED_MAX {
            out_of_order.clear();
        }
        *out_of_order.entry(event_id.to_owned()).or_default() += 1;
    }

    /// Has a message that cannot be consumed redelivered, or parks it after its last delivery; returns the acknowledgement. The
    /// broker drops the message only after the database has stored it.
    async fn reject(&self, message: &Message, event: Option<&Event>, reason: String) -> AckKind {
        let event_id = event.map(|event| event.event_id.clone()).or_else(|| message_id(message));
        let consumer = &self.options.name;
        let deliveries = deliveries(message);
        let redeliver = AckKind::Nak(Some(self.redelivery_pause(deliveries)));
        if deliveries < self.options.deliveries_max {
            tracing::warn!(
                consumer,
                event.id = event_id,
                deliveries,
                reason,
                "the event consumer could not consume a message; the broker delivers the message again"
            );
            return redeliver;
        }
        let Ok(info) = message.info() else { return redeliver };
        let published = info.published.unix_timestamp_nanos();
        let Ok(published_at) = Timestamp::from_nanosecond(published) else { return redeliver };
        let parked = ParkedDelivery {
            consumer: consumer.clone(),
            stream: info.stream.to_owned(),
            stream_sequence: i64::try_from(info.stream_sequence).unwrap_or(i64::MAX),
            published_at,
            subject: message.subject.to_string(),
            event_id,
            payload: message.payload.to_vec(),
            reason,
            deliveries,
        };
        match consume::park(&self.pool, &parked, event).await {
            Ok(()) => {
                metrics::counter!("events_parked_total", "consumer" => consumer.clone()).increment(1);
                let ParkedDelivery { event_id, reason, .. } = parked;
                tracing::error!(
                    consumer,
                    event.id = event_id,
                    deliveries,
                    reason,
                    "the event consumer parked a message after its last delivery; an operator must republish or discard the message (payctl events parked)"
                );
                AckKind::Term
            }
            Err(error) => {
                tracing::warn!(
                    consumer,
                    event.id = parked.event_id,
                    error = &error as &dyn std::error::Error,
                    "the event consumer could not park a message; the broker delivers the message again"
                );
                redeliver
            }
        }
    }

    fn redelivery_pause(&self, deliveries: i64) -> Duration {
        let doublings = u32::try_from(deliveries.saturating_sub(1)).unwrap_or(0).min(8);
        self.options
            .redelivery_pause
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(REDELIVERY_PAUSE_MAX)
    }
}

/// A message whose event is being consumed.
struct Delivery {
    message: Message,
    span: Span,
    /// Earlier deliveries that were out of order.
    out_of_order: u32,
    /// Whether the event no longer waits for an earlier one of its key.
    is_waived: bool,
}

/// The event of a message, or why the message has no event.
fn parse(message: &Message) -> Result<Event, String> {
    let event: Event = serde_json::from_slice(&message.payload)
        .map_err(|error| format!("the message is not an event: {error}"))?;
    // A PostgreSQL text cannot contain NUL, so the database would refuse the event at each delivery.
    if [&event.event_id, &event.kind, &event.key].iter().any(|text| text.contains('\0')) {
        return Err("the id, kind or key contains a NUL character".into());
    }
    Ok(event)
}

/// The durable consumer at the broker, which stores its position while no process runs. There is one for all keys: the broker
/// writes the position of each consumer to its disk, and eight of them cost it more than the events.
fn durable_config(options: &ConsumerOptions) -> pull::Config {
    pull::Config {
        durable_name: Some(options.name.clone()),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: options.ack_wait,
        // Unlimited: this crate decides when to park a message.
        max_deliver: -1,
        max_ack_pending: ACK_PENDING_MAX,
        ..pull::Config::default()
    }
}

/// The id under which the message was published: the event id, also if the payload is unreadable.
fn message_id(message: &Message) -> Option<String> {
    let id = message.headers.as_ref()?.get(NATS_MESSAGE_ID)?;
    Some(id.as_str().to_owned())
}

/// Position in the trace of the process that published the message.
fn trace_parent(message: &Message) -> Option<TraceParent> {
    TraceParent::parse(message.headers.as_ref()?.get(TRACEPARENT)?.as_str())
}

/// Number of deliveries of the message, including this one.
fn deliveries(message: &Message) -> i64 {
    message.info().map_or(1, |info| info.delivered)
}
