//! What `payment-worker` reads from its configuration; other processes' sections are ignored.

use std::net::SocketAddr;
use std::time::Duration;

use payment_ledger::DatabaseOptions;
use serde::Deserialize;
use switch_client::Switches;
use workflow_api::TemporalOptions;

/// Sections of the shared configuration file.
#[derive(Debug, Deserialize)]
pub struct Options {
    /// `[database]`
    #[serde(default)]
    pub database: DatabaseOptions,
    /// `[temporal]`
    #[serde(default)]
    pub temporal: TemporalOptions,
    /// `[worker]`
    #[serde(default)]
    pub worker: WorkerSection,
    /// `[switches.*]`
    pub switches: Switches,
}

/// How this process works.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerSection {
    /// Where health and metrics are served. Default `127.0.0.1:9101`.
    pub metrics_listen: SocketAddr,
    /// Payments of one switch, of all workers together, that may be started and not yet with the
    /// switch: a hung switch fills only its own max_in_flight. Default 200.
    pub max_in_flight: i64,
    /// Pause between two looks for accepted payments, in milliseconds. Default 100.
    pub poll_interval_ms: u64,
    /// How long an open payment may be idle before its workflow is looked after, in milliseconds.
    /// Default 90000, above the SLA, so that a quiet wait is not looked at again and again.
    pub liveness_check_after_ms: i64,
    /// Pause between two looks for idle payments, in milliseconds. Default 5000.
    pub liveness_check_interval_ms: u64,
    /// Workflows kept in memory; 0 replays every task. Default 1000.
    pub cached_workflows: usize,
    /// Grants of one run of an account lock, before it goes on as a new run with a history of its own.
    /// Default 100.
    pub lock_grants_max: u32,
    /// How often the three books are compared, in seconds; 0 leaves it to others. Default 3600. It is taken when the schedule
    /// is made: later it is changed in Temporal.
    pub reconciliation_interval_s: u64,
    /// How long activities under way are given at a stop, in milliseconds. Default 8000.
    pub shutdown_timeout_ms: u64,
}

impl Default for WorkerSection {
    fn default() -> Self {
        Self {
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 9101)),
            max_in_flight: 200,
            poll_interval_ms: 100,
            liveness_check_after_ms: 90_000,
            liveness_check_interval_ms: 5_000,
            cached_workflows: 1_000,
            lock_grants_max: 100,
            reconciliation_interval_s: 3_600,
            shutdown_timeout_ms: 8_000,
        }
    }
}

impl WorkerSection {
    /// How often the books are compared; none where this is left to others.
    pub(crate) fn reconciliation_interval(&self) -> Option<Duration> {
        (self.reconciliation_interval_s > 0).then(|| Duration::from_secs(self.reconciliation_interval_s))
    }
}
