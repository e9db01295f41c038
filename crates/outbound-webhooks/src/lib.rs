//! Endpoints of tenants are told of events over HTTP, signed as Standard Webhooks has it
//! (<https://www.standardwebhooks.com>): at least once, tried again for days, each attempt on record.
//!
//! What is to be delivered is a row, written in the transaction that takes the event in. Any number of senders claim rows for
//! the time of a lease, post outside any transaction, and record what came of it. The same event has the same id at each
//! attempt; order is not promised.
//!
//! This crate knows nothing of what the events tell.
//!
//! | file | question |
//! |---|---|
//! | [`config`] | what may be set? |
//! | [`endpoints`] | who is told, of what, where? |
//! | [`target`], [`address`] | which addresses may be reached? |
//! | [`secret`] | what is it signed with? |
//! | [`fan_out`] | what does an event become? |
//! | [`sender`], [`schedule`] | who sends it, when, how often? |
//! | [`deliveries`] | what was delivered and what not, and how is it sent again? |
//! | [`keep`], [`measure`] | how do the tables stay small, and how much waits? |

pub mod address;
pub mod config;
pub mod deliveries;
pub mod endpoints;
mod error;
mod fan_out;
mod id;
pub mod keep;
mod measure;
pub mod schedule;
pub mod secret;
pub mod sender;
pub mod target;

use sqlx::migrate::Migrator;

pub use config::{CheckedOutboundWebhooks, OutboundWebhooksOptions};
pub use error::WebhooksError;
pub use fan_out::{FanOutError, Message, fan_out};
pub use id::{EndpointId, EndpointIdError};
pub use measure::{Measured, measure};
pub use sender::Sender;

/// Migrations of the tables `webhook_endpoints`, `webhook_deliveries` and `webhook_attempts`.
pub static MIGRATOR: Migrator = sqlx::migrate!();
