//! Delivers events to endpoints of tenants over HTTP, signed as Standard Webhooks specifies
//! (<https://www.standardwebhooks.com>): at least once, with retries for days, and with a record of each attempt.
//!
//! A delivery is a row, written in the transaction that consumes the event. Any number of senders claim rows for a lease,
//! send outside any transaction, and record the outcome. Each attempt of an event has the same id; order is not guaranteed.
//!
//! This crate does not interpret the events.
//!
//! | file | content |
//! |---|---|
//! | [`config`] | the settings |
//! | [`endpoints`] | endpoints of tenants: create, read, change, delete, and the commands of operators |
//! | [`target`], [`address`] | permitted URLs and addresses |
//! | [`secret`] | the secrets that sign deliveries |
//! | [`fan_out`] | an event becomes deliveries |
//! | [`sender`], [`schedule`] | sending, and the delays between attempts |
//! | [`deliveries`] | the deliveries of an endpoint, and their replay |
//! | [`retention`], [`measure`] | deleting old rows, and the gauges |

pub mod address;
pub mod config;
pub mod deliveries;
pub mod endpoints;
mod error;
mod fan_out;
mod id;
mod measure;
pub mod retention;
pub mod schedule;
pub mod secret;
pub mod sender;
pub mod target;

use sqlx::migrate::Migrator;

pub use config::{CheckedOutboundWebhooks, OutboundWebhooksOptions};
pub use error::WebhooksError;
pub use fan_out::{FanOutError, WebhookEvent, fan_out};
pub use id::{EndpointId, EndpointIdError};
pub use measure::{WebhookBacklog, measure};
pub use sender::DeliverySender;

/// Migrations of the tables `webhook_endpoints`, `webhook_deliveries` and `webhook_attempts`.
pub static MIGRATOR: Migrator = sqlx::migrate!();
