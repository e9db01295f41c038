//! Publishing: the message's id is the event's, so that the broker keeps a repeat out for a while; published is what the
//! broker has confirmed.

use std::sync::atomic::{AtomicBool, Ordering};

use async_nats::jetstream::Error as JetStreamError;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishError as NatsError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;

use super::Broker;
use crate::{Event, PublishError, Publisher};

/// Publishes to the stream.
#[derive(Debug)]
pub struct JetStream {
    broker: Broker,
    /// The stream was seen since the broker last said that there is none.
    is_seen: AtomicBool,
}

impl JetStream {
    /// Over a connection; the stream is looked for, or made, before the first event.
    #[must_use]
    pub fn new(broker: Broker) -> Self {
        Self { broker, is_seen: AtomicBool::new(false) }
    }
}

impl Publisher for JetStream {
    async fn publish(&self, event: &Event) -> Result<(), PublishError> {
        let unknown = |error: &dyn std::error::Error| PublishError::Unknown { reason: chain(error) };
        let refused = |reason: String| PublishError::Refused { reason };
        self.broker.is_connected().map_err(|error| unknown(&error))?;
        if !self.is_seen.load(Ordering::Relaxed) {
            self.broker.stream().await.map_err(|error| unknown(&error))?;
            self.is_seen.store(true, Ordering::Relaxed);
        }
        let subject = self
            .broker
            .subject(&event.key, &event.kind)
            .ok_or_else(|| refused(format!("{:?} cannot be a part of a subject", event.kind)))?;
        let payload = serde_json::to_vec(event).map_err(|error| refused(error.to_string()))?;
        let message = PublishMessage::build().payload(payload.into()).message_id(&event.event_id);
        let sent = async { self.broker.context.send_publish(subject, message).await?.await };
        match sent.await {
            Ok(_) => Ok(()),
            Err(error) if is_refusal(&error) => Err(refused(chain(&error))),
            Err(error) => {
                if error.kind() == PublishErrorKind::StreamNotFound {
                    self.is_seen.store(false, Ordering::Relaxed);
                }
                Err(unknown(&error))
            }
        }
    }
}

/// Whether the broker will not take this very message. Everything else, a full disk too, may pass.
fn is_refusal(error: &NatsError) -> bool {
    let said = std::error::Error::source(error).and_then(|source| source.downcast_ref::<JetStreamError>());
    let too_large = [ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM];
    error.kind() == PublishErrorKind::MaxPayloadExceeded
        || said.is_some_and(|said| too_large.contains(&said.error_code()))
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        source = cause.source();
    }
    words
}
