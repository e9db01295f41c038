//! The background tasks of the background-worker.

use std::time::Duration;

use payment_protocol::text_enum;

text_enum!(
    /// A task that repeats until the process stops. It records each success, so that a task that fails or hangs is noticed.
    BackgroundTask {
        /// Delivers inbox messages to workflows.
        InboxDelivery = "inbox_delivery",
        /// Restores customers' accounts without a confirmation in time.
        AccountRestoring = "account_restoring",
        /// Sets the gauges of open payments and backlogs.
        MetricsCollection = "metrics_collection",
        /// Checks open holds against payments and journal.
        HoldAudit = "hold_audit",
        /// Extends the journal's hash chain.
        JournalSealing = "journal_sealing",
        /// Appends the signed heads of the hash chains to a file.
        HeadsExport = "heads_export",
        /// Maintains the partitions of idempotency keys and deletes old events.
        PartitionMaintenance = "partition_maintenance",
    }
);

impl BackgroundTask {
    /// How long the task may go without success before an alert fires: several times its default interval, and at least
    /// a minute, which a restart of the database may take.
    #[must_use]
    pub fn stalled_after(self) -> Duration {
        Duration::from_secs(match self {
            Self::InboxDelivery | Self::AccountRestoring | Self::MetricsCollection | Self::JournalSealing => {
                60
            }
            Self::HoldAudit => 300,
            // A few rounds of 15 minutes.
            Self::HeadsExport => 3_600,
            // The next three days already have partitions.
            Self::PartitionMaintenance => 1_800,
        })
    }

    /// Records a successful round in `background_task_last_success_timestamp_seconds`. Call it at the start of the process
    /// too, so that a task that never succeeds counts from there.
    #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 stay far below 2^53")]
    pub fn record_success(self) {
        let now_s = jiff::Timestamp::now().as_second() as f64;
        metrics::gauge!("background_task_last_success_timestamp_seconds", "task" => self.as_str()).set(now_s);
    }
}
