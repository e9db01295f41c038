//! A payment switch to test against. It accepts transfers, settles or rejects them later, sends signed callbacks, cancels,
//! recalls, and misbehaves on request.
//!
//! The mock is an independent party: it knows nothing of the bank's ledger or protocol, shares no type with its clients,
//! and keeps its own book in its own database, so that a comparison of both books is meaningful. One process per database.
//! A killed process loses nothing that it answered.
//!
//! | file | content |
//! |---|---|
//! | `server` | connects, migrates, starts and stops the switch |
//! | `state` | configuration, settings and database, shared by handlers and tasks |
//! | `routes` | the HTTP API: `/v1` for banks, `/admin` for tests |
//! | `book` | all SQL about transfers, their answers and their callbacks |
//! | [`behaviour`], `plan`, [`sandbox`] | scripted misbehaviour, and which of it applies to a reference |
//! | `rail`, `id_pattern` | the shapes of real rails, and the patterns of their ids |
//! | `completion_task`, `callbacks` | background tasks: complete due transfers, send callbacks |
//! | `drop_connection` | closes a connection instead of answering |

mod auth;
pub mod behaviour;
mod book;
mod callbacks;
mod clock;
mod completion_task;
mod config;
mod drop_connection;
mod error;
mod id_pattern;
mod metrics;
mod plan;
mod rail;
mod routes;
pub mod sandbox;
mod server;
mod settings;
mod state;
mod status;

pub use config::Config;
pub use id_pattern::IdPattern;
pub use metrics::METRICS;
pub use rail::Rail;
pub use server::{RunningSwitch, connect, start};
pub use settings::{RejectCodes, Shape};

/// The migrations of the switch's database; [`start`] applies them.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();
