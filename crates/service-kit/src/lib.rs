//! Shared by every process: configuration, logs, metrics, shutdown, background loops, HTTP serving, errors as problem
//! documents.
//!
//! This crate knows nothing of payments and of databases, so any service can use it, and so can an independent party
//! (the mock switch).

pub mod bounds;
pub mod config;
pub mod connection;
mod error_chain;
pub mod metrics;
pub mod peers;
pub mod problem;
pub mod published;
pub mod requests;
pub mod serve;
pub mod shutdown;
pub mod task;
pub mod telemetry;

pub use error_chain::error_chain;
