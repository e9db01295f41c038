//! What `relay` reads from its configuration; other processes' sections are ignored.

use std::net::SocketAddr;

use outbox::nats::BrokerOptions;
use payment_ledger::DatabaseOptions;
use serde::Deserialize;
use workflow_api::TemporalOptions;

/// Sections of the shared configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    /// `[database]`
    pub(crate) database: DatabaseOptions,
    /// `[temporal]`
    pub(crate) temporal: TemporalOptions,
    /// `[broker]`
    pub(crate) broker: BrokerOptions,
    /// `[background_worker]`
    pub(crate) background_worker: BackgroundWorkerOptions,
}

/// How this process works.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BackgroundWorkerOptions {
    /// Where health and metrics are served. Default `127.0.0.1:9102`.
    pub(crate) metrics_listen: SocketAddr,
    /// Pause between two looks for what is not delivered, in milliseconds. Default 250.
    pub(crate) poll_interval_ms: u64,
    /// First pause before a message is delivered again, in milliseconds; doubled each time, five
    /// minutes at most. Default 500.
    pub(crate) backoff_ms: i64,
    /// Notices taken in one look. Default 100.
    pub(crate) batch: i64,
    /// Pause between two measurements, in milliseconds. Default 5000.
    pub(crate) metrics_interval_ms: u64,
    /// Pause between two audits of what is held, in milliseconds. Default 60000.
    pub(crate) audit_interval_ms: u64,
    /// Pause between two looks after the table of idempotency keys, in milliseconds. Default 60000.
    pub(crate) partition_maintenance_interval_ms: u64,
    /// Pause between two looks for events when nobody nudges, in milliseconds; 1 to 500 (S3.5). Default 250.
    pub(crate) publish_interval_ms: u64,
    /// How long published events are kept so that they can be published again, in seconds. Default 14 days.
    pub(crate) event_retention_s: u64,
    /// Pause between two batches of entries that are sealed, in milliseconds; none after a full one. Default 1000.
    pub(crate) seal_interval_ms: u64,
    /// Entries of a batch at most, 10000 at most. Default 5000.
    pub(crate) seal_batch_max: i64,
}

impl Default for BackgroundWorkerOptions {
    fn default() -> Self {
        Self {
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 9102)),
            poll_interval_ms: 250,
            backoff_ms: 500,
            batch: 100,
            metrics_interval_ms: 5_000,
            audit_interval_ms: 60_000,
            partition_maintenance_interval_ms: 60_000,
            publish_interval_ms: 250,
            event_retention_s: 14 * 24 * 3600,
            seal_interval_ms: 1_000,
            seal_batch_max: 5_000,
        }
    }
}
