//! What the relay needs of a broker.

use std::future::Future;

use crate::Event;

/// A broker that says when it has an event.
pub trait Publisher: Send + Sync {
    /// Publishes, and is done when the broker has confirmed that it keeps the event. Publishing an event again must be
    /// harmless. It must end by itself, within a few seconds.
    ///
    /// # Errors
    /// [`PublishError`].
    fn publish(&self, event: &Event) -> impl Future<Output = Result<(), PublishError>> + Send;
}

/// An event that is not known to be published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The broker, or we on its behalf, will not take this very event, whenever it is tried.
    #[error("the broker refuses the event: {reason}")]
    Refused {
        /// In words.
        reason: String,
    },
    /// No answer, no connection, no room: it may be published or not, and is to be published again.
    #[error("whether the event is published is not known: {reason}")]
    Unknown {
        /// In words.
        reason: String,
    },
}
