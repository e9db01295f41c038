//! What `notifier` reads from its configuration; other processes' sections are ignored.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use outbound_webhooks::OutboundWebhooksOptions;
use outbox::nats::{BrokerOptions, ConsumerOptions};
use payment_ledger::DatabaseOptions;
use payment_ledger::events::Consumer;
use serde::Deserialize;

/// Sections of the shared configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    /// `[database]`
    pub(crate) database: DatabaseOptions,
    /// `[broker]`
    pub(crate) broker: BrokerOptions,
    /// `[notifier]`
    pub(crate) notifier: NotifierOptions,
    /// `[outbound_webhooks]`
    pub(crate) outbound_webhooks: OutboundWebhooksOptions,
}

/// How this process works.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NotifierOptions {
    /// Where health and metrics are served. Default `127.0.0.1:9103`.
    pub(crate) metrics_listen: SocketAddr,
    /// How long an event may take until the broker delivers it again, in milliseconds, at least 1. Default 15000.
    pub(crate) ack_wait_ms: u64,
    /// Deliveries of an event that cannot be told, until it is parked; at least 1. Default 5.
    pub(crate) deliveries_max: i64,
    /// How long it is remembered what was taken in, in seconds; longer than the broker and the relay keep events. Default 30
    /// days.
    pub(crate) marks_kept_s: u64,
}

impl Default for NotifierOptions {
    fn default() -> Self {
        Self {
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 9103)),
            ack_wait_ms: 15_000,
            deliveries_max: 5,
            marks_kept_s: 30 * 24 * 3600,
        }
    }
}

impl Options {
    /// How events are taken in to tell customers.
    ///
    /// # Errors
    /// A setting that is refused.
    pub(crate) fn customers(&self) -> anyhow::Result<ConsumerOptions> {
        self.consumer(Consumer::Customers)
    }

    /// How events are taken in to tell webhook endpoints.
    ///
    /// # Errors
    /// A setting that is refused.
    pub(crate) fn endpoints(&self) -> anyhow::Result<ConsumerOptions> {
        self.consumer(Consumer::Endpoints)
    }

    fn consumer(&self, consumer: Consumer) -> anyhow::Result<ConsumerOptions> {
        let NotifierOptions { ack_wait_ms, deliveries_max, marks_kept_s, .. } = self.notifier;
        ensure!(ack_wait_ms > 0, "notifier.ack_wait_ms must be greater than zero");
        ensure!(deliveries_max > 0, "notifier.deliveries_max must be greater than zero");
        ensure!(
            marks_kept_s > self.broker.max_age_s,
            "notifier.marks_kept_s must be greater than broker.max_age_s, or a customer could be told twice"
        );
        Ok(ConsumerOptions {
            ack_wait: Duration::from_millis(ack_wait_ms),
            deliveries_max,
            ..ConsumerOptions::new(consumer.as_str())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_must_outlive_what_can_come_again() {
        let mut options = Options::default();
        assert!(options.customers().is_ok());
        options.notifier.marks_kept_s = options.broker.max_age_s;
        assert!(options.customers().unwrap_err().to_string().contains("marks_kept_s"));
    }
}
