//! Events written in the transaction of what happened, published to a broker afterwards, and taken in once by whoever
//! consumes them.
//!
//! An event is a row that is true together with what it tells of. A relay publishes the rows, in order for each key, until
//! the broker has confirmed them: at least once. A consumer writes the event's id in the transaction of its effect: once.
//!
//! This crate knows nothing of what the events tell.
//!
//! | file | question |
//! |---|---|
//! | [`append`] | how is an event written? |
//! | [`Event`] | what is an event, as a row and as a message? |
//! | [`Relay`], `seat` | who publishes, in which order, and what when it fails? |
//! | [`Publisher`] | what must a broker do? |
//! | [`Nudge`] | how does the relay hear of a new event at once? |
//! | [`keep`] | how do the tables stay small, and how is something published again? |
//! | [`measure`] | how much waits, and since when? |
//! | [`intake`] | how is an event taken in once, and what of one that cannot be? |
//! | [`nats`] | the broker: NATS JetStream |

mod append;
mod error;
mod event;
pub mod intake;
pub mod keep;
mod measure;
pub mod nats;
mod nudge;
mod publisher;
mod relay;
mod seat;

use sqlx::migrate::Migrator;

pub use append::{NewEvent, append};
pub use error::OutboxError;
pub use event::Event;
pub use measure::{Behind, Measured, Watch, measure};
pub use nudge::Nudge;
pub use publisher::{PublishError, Publisher};
pub use relay::{Relay, RelayOptions};

/// Migrations of the tables `outbox_keys`, `outbox`, `processed_events`, `consumer_positions` and `parked_deliveries`.
pub static MIGRATOR: Migrator = sqlx::migrate!();
