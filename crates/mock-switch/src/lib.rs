//! A payment switch to test against: accepts transfers, settles or rejects them
//! later, calls back signed, cancels, recalls, and misbehaves on request.
//!
//! It is an independent party. It knows nothing of the bank's ledger or
//! protocol, shares no type with its clients, and keeps its own book in its own
//! database, so that comparing the two books means something. One process per
//! database; a killed process loses nothing it answered.

mod auth;
pub mod behaviour;
mod book;
mod callbacks;
mod clock;
mod config;
mod cut;
mod error;
mod measured;
mod routes;
pub mod sandbox;
mod settings;
mod settle;
mod switch;

pub use config::Config;
pub use measured::METRICS;
pub use settings::Shape;
pub use switch::{Running, connect, start};

/// The migrations of the switch's database; [`start`] applies them.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();
