//! Configuration of `payment-worker`. Sections of other processes are ignored.

use std::net::SocketAddr;

use payment_ledger::DatabaseOptions;
use serde::Deserialize;
use service_kit::config::check_bounds;
use switch_client::Switches;
use workflow_api::TemporalOptions;

/// Sections of the shared configuration file.
#[derive(Debug, Deserialize)]
pub struct Options {
    /// Section `[database]`.
    #[serde(default)]
    pub database: DatabaseOptions,
    /// Section `[temporal]`.
    #[serde(default)]
    pub temporal: TemporalOptions,
    /// Section `[worker]`.
    #[serde(default)]
    pub worker: PaymentWorkerOptions,
    /// Section `[switches.*]`.
    pub switches: Switches,
}

/// Section `[worker]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaymentWorkerOptions {
    /// Where health and metrics are served. Default `127.0.0.1:9101`.
    pub metrics_listen: SocketAddr,
    /// In-flight limit of each switch, over all workers: payments that are being started, are started and not yet
    /// submitted, or are confirmed and not debited within ten seconds. A hung switch uses up only its own limit; 1 to 1000000. Default 200.
    pub max_in_flight: i64,
    /// Interval at which accepted payments are claimed, in milliseconds, 1 to 60000. Default 100.
    pub poll_interval_ms: u64,
    /// Idle time of an open payment after which the liveness check describes its workflow, in milliseconds.
    /// 1 to 86400000. Default 90000: above the SLA, so that an ordinary wait causes no checks.
    pub liveness_check_after_ms: i64,
    /// Interval of the liveness check, in milliseconds, 1 to 600000. Default 5000.
    pub liveness_check_interval_ms: u64,
    /// Workflows in the sticky cache; 0 replays the history at every workflow task. Default 1000.
    pub cached_workflows: usize,
    /// Grants after which an account lock continues as a new run, 1 to 10000. Default 100.
    pub lock_grants_max: u32,
    /// Interval of the reconciliation runs with a window, in seconds; 0 creates no schedule. Default 3600. Applies when the
    /// schedule is created, as do the next two; change an existing schedule in Temporal.
    pub reconciliation_interval_s: u64,
    /// Window of these runs, in seconds: they compare what is open, and what changed since then. Longer than a switch may need to list a
    /// transfer. Default 259200, three days.
    pub reconciliation_window_s: u32,
    /// Interval of the reconciliation runs over everything, in seconds; 0 creates no schedule. Default 86400.
    pub full_reconciliation_interval_s: u64,
    /// Build id of this release, of 1 to 100 characters `A-Z a-z 0-9 . _ -`: Temporal then runs each workflow to its end on the release
    /// on which it started (worker versioning, with the task queue as the deployment's name), and new ones on the current version, which
    /// operators set. Empty: any worker continues any workflow. Default empty.
    pub build_id: String,
    /// Time for running activities to finish at a shutdown, in milliseconds. Polls, cancels and recalls that wait for a switch are
    /// abandoned after a second at most. Default 8000.
    pub shutdown_timeout_ms: u64,
}

impl PaymentWorkerOptions {
    /// # Errors
    /// A value is out of its bounds: no payment would start, or a loop would never pause. Or the window is shorter than the interval of its
    /// reconciliation runs: what changes between two windows would be compared by no hourly run.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let numbers = [
            ("max_in_flight", self.max_in_flight, 1_000_000),
            ("poll_interval_ms", i64::try_from(self.poll_interval_ms).unwrap_or(i64::MAX), 60_000),
            ("liveness_check_after_ms", self.liveness_check_after_ms, 86_400_000),
            (
                "liveness_check_interval_ms",
                i64::try_from(self.liveness_check_interval_ms).unwrap_or(i64::MAX),
                600_000,
            ),
            ("lock_grants_max", self.lock_grants_max.into(), 10_000),
        ];
        check_bounds("worker", &numbers)?;
        let (window_s, interval_s) = (self.reconciliation_window_s, self.reconciliation_interval_s);
        anyhow::ensure!(
            u64::from(window_s) >= interval_s,
            "worker.reconciliation_window_s is {window_s}, and worker.reconciliation_interval_s {interval_s}: set a window that is at \
             least as long as the interval"
        );
        Ok(())
    }
}

impl Default for PaymentWorkerOptions {
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
            reconciliation_window_s: 259_200,
            full_reconciliation_interval_s: 86_400,
            build_id: String::new(),
            shutdown_timeout_ms: 8_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_would_start_no_payment_never_pause_a_loop_or_compare_nothing_is_refused() {
        type Change = fn(&mut PaymentWorkerOptions);
        let options = |change: Change| {
            let mut options = PaymentWorkerOptions::default();
            change(&mut options);
            options.check().map_err(|error| error.to_string())
        };
        assert_eq!(options(|_| {}), Ok(()));
        let refused: [(Change, &str); 3] = [
            (|options| options.max_in_flight = 0, "worker.max_in_flight (0) is from 1 to 1000000"),
            (|options| options.poll_interval_ms = 0, "worker.poll_interval_ms (0) is from 1 to 60000"),
            (
                |options| options.reconciliation_window_s = 3_599,
                "worker.reconciliation_window_s is 3599, and worker.reconciliation_interval_s 3600: set a window that is at least as long as the interval",
            ),
        ];
        for (change, message) in refused {
            assert_eq!(options(change), Err(message.to_owned()));
        }
    }
}
