//! What every process shares: reading configuration, logs, metrics, stopping,
//! serving HTTP, errors as problem documents, and webhook signatures.
//!
//! It knows nothing of payments and nothing of any database, so that any
//! service can use it and an independent party (the mock switch) can too.

pub mod bounds;
pub mod config;
pub mod connection;
pub mod metrics;
pub mod problem;
pub mod serve;
pub mod shutdown;
pub mod signature;
pub mod telemetry;
