//! The broker, as the relay uses it.

use std::future::Future;

use crate::Event;

/// A broker that confirms events.
pub trait Publisher: Send + Sync {
    /// Publishes the event and returns after the broker has confirmed that it stored the event. Publishing an event again must
    /// be harmless. The call must end within a few seconds.
    ///
    /// # Errors
    /// [`PublishError`].
    fn publish(&self, event: &Event) -> impl Future<Output = Result<(), PublishError>> + Send;
}

/// The broker has not confirmed an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The broker, or the publisher for it, rejects this event; a repeat would be rejected too.
    #[error("the broker rejected the event: {reason}")]
    Rejected {
        /// Why the event is rejected, in words.
        reason: String,
    },
    /// No connection, no answer, or a broker without disk space. Whether the event is published is unknown; it must be
    /// published again.
    #[error("the broker did not confirm the event: {reason}")]
    Unconfirmed {
        /// Why the event is unconfirmed, in words.
        reason: String,
    },
}
