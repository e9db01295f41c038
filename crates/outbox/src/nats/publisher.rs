//! Publishes to the stream. The message id is the event id, so the broker discards a repeat for a while.

use std::sync::atomic::{AtomicBool, Ordering};

use async_nats::jetstream::Error as JetStreamError;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishError as NatsError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;

use trace_kit::{TRACEPARENT, TraceParent};

use super::Broker;
use crate::{Event, PublishError, Publisher};

/// Publishes to the stream and waits for its acknowledgement.
#[derive(Debug)]
pub struct JetStreamPublisher {
    broker: Broker,
    /// Whether the stream existed at the last publish.
    stream_exists: AtomicBool,
}

impl JetStreamPublisher {
    /// A publisher over a connection to the broker; the stream is created before the first event if it does not exist.
    #[must_use]
    pub fn new(broker: Broker) -> Self {
        Self { broker, stream_exists: AtomicBool::new(false) }
    }
}

impl Publisher for JetStreamPublisher {
    async fn publish(&self, event: &Event) -> Result<(), PublishError> {
        let unconfirmed =
            |error: &dyn std::error::Error| PublishError::Unconfirmed { reason: error_chain(error) };
        let rejected = |reason: String| PublishError::Rejected { reason };
        self.broker.ensure_connected().map_err(|error| unconfirmed(&error))?;
        if !self.stream_exists.load(Ordering::Relaxed) {
            self.broker.stream().await.map_err(|error| unconfirmed(&error))?;
            self.stream_exists.store(true, Ordering::Relaxed);
        }
        let subject = self
            .broker
            .subject(&event.kind)
            .ok_or_else(|| rejected(format!("the kind {:?} cannot be part of a subject", event.kind)))?;
        let payload = serde_json::to_vec(event).map_err(|error| rejected(error.to_string()))?;
        let mut message = PublishMessage::build().payload(payload.into()).message_id(&event.event_id);
        if let Some(position) = TraceParent::current() {
            message = message.header(TRACEPARENT, position.to_string());
        }
        let acknowledgement = async { self.broker.context.send_publish(subject, message).await?.await };
        match acknowledgement.await {
            Ok(_) => Ok(()),
            Err(error) if is_rejection(&error) => Err(rejected(error_chain(&error))),
            Err(error) => {
                if error.kind() == PublishErrorKind::StreamNotFound {
                    self.stream_exists.store(false, Ordering::Relaxed);
                }
                Err(unconfirmed(&error))
            }
        }
    }
}

/// Whether the broker rejects this message for good. Other errors, such as a full disk, may be temporary.
fn is_rejection(error: &NatsError) -> bool {
    let answer = std::error::Error::source(error).and_then(|source| source.downcast_ref::<JetStreamError>());
    let too_large = [ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM];
    error.kind() == PublishErrorKind::MaxPayloadExceeded
        || answer.is_some_and(|answer| too_large.contains(&answer.error_code()))
}

/// An error and its causes in one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
