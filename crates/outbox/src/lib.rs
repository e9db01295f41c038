//! Events that are written in the transaction they report, published to a broker afterwards, and consumed once.
//!
//! An event is a row of the table `outbox`. The relay publishes the rows, in order per key, until the broker has confirmed
//! them: at least once. A consumer stores the event's id in the transaction of its effect: the effect happens once.
//!
//! This crate does not interpret the events.
//!
//! | file | content |
//! |---|---|
//! | [`append`] | writes an event in the caller's transaction |
//! | [`Event`] | an event, as a row and as a message |
//! | [`Relay`], `backoff`, `leader_lock` | publishing: order, retries, and one active relay at a time |
//! | [`Publisher`] | the broker, as the relay uses it |
//! | [`wake_relay`] | the wake-up notification after a commit |
//! | [`consume`] | consuming an event once, and parking a message that cannot be consumed |
//! | [`operator`] | commands of operators: list, retry, discard and republish |
//! | [`retention`] | deleting old rows |
//! | [`measure`], [`ConsumerLagMonitor`] | the gauges |
//! | [`nats`] | the broker NATS JetStream |

mod append;
mod backoff;
pub mod consume;
mod consumer_lag;
mod error;
mod event;
mod leader_lock;
mod measure;
pub mod nats;
pub mod operator;
mod publisher;
mod relay;
pub mod retention;
mod wake_up;

use sqlx::migrate::Migrator;

pub use append::{NewEvent, append, append_all};
pub use consumer_lag::{ConsumerLag, ConsumerLagMonitor};
pub use error::OutboxError;
pub use event::Event;
pub use measure::{OutboxBacklog, measure};
pub use publisher::{PublishError, Publisher};
pub use relay::{Relay, RelayOptions};
pub use wake_up::wake_relay;

/// Migrations of the tables `outbox_keys`, `outbox`, `processed_events`, `consumer_positions` and `parked_deliveries`.
pub static MIGRATOR: Migrator = sqlx::migrate!();
