//! Configuration of the background-worker; sections of other processes are ignored.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use idempotency::IdempotencyOptions;
use outbox::nats::BrokerOptions;
use payment_ledger::DatabaseOptions;
use payment_ledger::audit::seal::heads::HeadsKey;
use secrecy::SecretString;
use serde::Deserialize;
use service_kit::config::{ConfigError, check_bounds};
use workflow_api::TemporalOptions;

use crate::heads_export::HeadsExport;

/// The longest that an idempotency key lives, in seconds: it stores the payment's answer, with what is to be erased.
const KEYS_LIVE_S: u64 = IdempotencyOptions::RETENTION_MAX.as_secs();

/// Sections of the shared configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    /// Section `[database]`.
    pub(crate) database: DatabaseOptions,
    /// Section `[temporal]`.
    pub(crate) temporal: TemporalOptions,
    /// Section `[broker]`.
    pub(crate) broker: BrokerOptions,
    /// Section `[background_worker]`.
    pub(crate) background_worker: BackgroundWorkerOptions,
}

/// Intervals and bounds of the background tasks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BackgroundWorkerOptions {
    /// Address of health and metrics. Default `127.0.0.1:9102`.
    pub(crate) metrics_listen: SocketAddr,
    /// Pause between two polls of the inbox, in milliseconds, 1 to 60000. Default 250.
    pub(crate) poll_interval_ms: u64,
    /// First pause before an inbox message is delivered again, in milliseconds; doubled after each failure, 5 minutes at
    /// most; 1 to 300000. Default 500.
    pub(crate) backoff_ms: i64,
    /// Upper bound of inbox messages claimed by one poll, 1 to 10000. Default 100.
    pub(crate) batch: i64,
    /// Pause between two rounds for customers' accounts to restore, in milliseconds, 1 to 500. Default 200.
    pub(crate) restore_interval_ms: u64,
    /// Pause between two updates of the gauges, in milliseconds, 1 to 600000. Default 5000; nine times as long as the update took where
    /// that is longer, 30000 at most.
    pub(crate) metrics_interval_ms: u64,
    /// Pause between two hold audits, in milliseconds, 1 to 600000. Default 60000; nine times as long as the audit took where that is longer,
    /// 150000 at most.
    pub(crate) audit_interval_ms: u64,
    /// Pause between two rounds of partition maintenance, in milliseconds, 1 to 600000. Default 60000.
    pub(crate) partition_maintenance_interval_ms: u64,
    /// Longest pause between two polls of the outbox without a wake-up notification, in milliseconds; 1 to 500 (S3.5).
    /// Default 250.
    pub(crate) publish_interval_ms: u64,
    /// Retention of published events, during which they can be published again, in seconds. Default 14 days.
    pub(crate) event_retention_s: u64,
    /// How long a payment has ended before its personal fields are erased, where operators had its account erased, in seconds; not
    /// shorter than `event_retention_s`, and three days at least, the longest that idempotency keys live. Default 30 days.
    pub(crate) erase_after_s: u64,
    /// Pause between two batches of journal sealing, in milliseconds, 1 to 60000; no pause follows a full batch. Default 1000.
    pub(crate) seal_interval_ms: u64,
    /// Upper bound of journal entries of a batch, 1 to 10000. Default 5000.
    pub(crate) seal_batch_max: i64,
    /// File to which the heads of the hash chains are appended every 15 minutes, signed by `heads_key`; keep it where nobody reaches
    /// who may write the database. Default: none.
    pub(crate) heads_path: Option<PathBuf>,
    /// The key: 32 random bytes in base64. Default: none.
    pub(crate) heads_key: Option<SecretString>,
}

impl BackgroundWorkerOptions {
    /// # Errors
    /// A value is out of its bounds: its task would never do anything, or never pause.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let numbers = [
            ("poll_interval_ms", number(self.poll_interval_ms), 60_000),
            ("backoff_ms", self.backoff_ms, 300_000),
            ("batch", self.batch, 10_000),
            ("restore_interval_ms", number(self.restore_interval_ms), 500),
            ("metrics_interval_ms", number(self.metrics_interval_ms), 600_000),
            ("audit_interval_ms", number(self.audit_interval_ms), 600_000),
            ("partition_maintenance_interval_ms", number(self.partition_maintenance_interval_ms), 600_000),
            ("seal_interval_ms", number(self.seal_interval_ms), 60_000),
            ("seal_batch_max", self.seal_batch_max, 10_000),
        ];
        check_bounds("background_worker", &numbers)
    }

    /// How long a payment has ended before it is erased.
    ///
    /// # Errors
    /// Events could not be published again as long as `event_retention_s` promises, or what is erased would still be in the answer that
    /// the payment's idempotency key stores.
    pub(crate) fn erase_after(&self) -> anyhow::Result<Duration> {
        let (erase, kept) = (self.erase_after_s, self.event_retention_s);
        anyhow::ensure!(
            erase >= kept.max(KEYS_LIVE_S),
            "background_worker.erase_after_s ({erase}) is at least three days ({KEYS_LIVE_S}) and background_worker.event_retention_s ({kept})"
        );
        Ok(Duration::from_secs(erase))
    }

    /// The export of the heads, if it is configured.
    ///
    /// # Errors
    /// A key without a path or a path without a key, or a malformed key.
    pub(crate) fn heads_export(&self) -> anyhow::Result<Option<HeadsExport>> {
        match (&self.heads_path, &self.heads_key) {
            (None, None) => Ok(None),
            (Some(path), Some(key)) => {
                let key = HeadsKey::parse(key).context("background_worker.heads_key is invalid")?;
                Ok(Some(HeadsExport { path: path.clone(), key }))
            }
            _ => anyhow::bail!(
                "background_worker.heads_path and background_worker.heads_key belong together: set both or none"
            ),
        }
    }
}

impl Default for BackgroundWorkerOptions {
    fn default() -> Self {
        Self {
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 9102)),
            poll_interval_ms: 250,
            backoff_ms: 500,
            batch: 100,
            restore_interval_ms: 200,
            metrics_interval_ms: 5_000,
            audit_interval_ms: 60_000,
            partition_maintenance_interval_ms: 60_000,
            publish_interval_ms: 250,
            event_retention_s: 14 * 24 * 3600,
            erase_after_s: 30 * 24 * 3600,
            seal_interval_ms: 1_000,
            seal_batch_max: 5_000,
            heads_path: None,
            heads_key: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_would_stop_a_task_or_never_pause_it_is_refused() {
        type Change = fn(&mut BackgroundWorkerOptions);
        let options = |change: Change| {
            let mut options = BackgroundWorkerOptions::default();
            change(&mut options);
            options.check().map_err(|error| error.to_string())
        };
        assert_eq!(options(|_| {}), Ok(()));
        let refused: [(Change, &str); 4] = [
            (|options| options.batch = 0, "background_worker.batch (0) is from 1 to 10000"),
            (|options| options.backoff_ms = -1, "background_worker.backoff_ms (-1) is from 1 to 300000"),
            (
                |options| options.seal_interval_ms = 0,
                "background_worker.seal_interval_ms (0) is from 1 to 60000",
            ),
            (
                |options| options.restore_interval_ms = 501,
                "background_worker.restore_interval_ms (501) is from 1 to 500",
            ),
        ];
        for (change, message) in refused {
            assert_eq!(options(change), Err(message.to_owned()));
        }
    }

    #[test]
    fn no_payment_is_erased_while_its_key_or_an_event_of_it_is_kept() {
        let erase_after = |erase_after_s, event_retention_s| {
            BackgroundWorkerOptions { erase_after_s, event_retention_s, ..BackgroundWorkerOptions::default() }
                .erase_after()
        };
        assert!(erase_after(KEYS_LIVE_S, 1).is_ok());
        assert!(erase_after(KEYS_LIVE_S - 1, 1).is_err());
        assert!(erase_after(KEYS_LIVE_S, KEYS_LIVE_S + 1).is_err());
    }
}
