//! Configuration of `notifier`. Sections of other processes are ignored.

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
    /// Section `[database]`.
    pub(crate) database: DatabaseOptions,
    /// Section `[broker]`.
    pub(crate) broker: BrokerOptions,
    /// Section `[notifier]`.
    pub(crate) notifier: NotifierOptions,
    /// Section `[outbound_webhooks]`.
    pub(crate) outbound_webhooks: OutboundWebhooksOptions,
}

/// Section `[notifier]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NotifierOptions {
    /// Where health and metrics are served. Default `127.0.0.1:9103`.
    pub(crate) metrics_listen: SocketAddr,
    /// Time after which the broker redelivers an event without an acknowledgement, in milliseconds, at least 1. Default 15000.
    pub(crate) ack_wait_ms: u64,
    /// Deliveries after which an event that cannot be consumed is parked; at least 1. Default 5.
    pub(crate) deliveries_max: i64,
    /// Retention of the marks of consumed events, in seconds; longer than the retention of events in the broker and the outbox.
    /// Default 30 days.
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
    /// Options of the consumer that notifies customers.
    ///
    /// # Errors
    /// A setting is invalid.
    pub(crate) fn customers(&self) -> anyhow::Result<ConsumerOptions> {
        self.consumer(Consumer::Customers)
    }

    /// Options of the consumer that writes webhook deliveries.
    ///
    /// # Errors
    /// A setting is invalid.
    pub(crate) fn endpoints(&self) -> anyhow::Result<ConsumerOptions> {
        self.consumer(Consumer::Endpoints)
    }

    fn consumer(&self, consumer: Consumer) -> anyhow::Result<ConsumerOptions> {
        let NotifierOptions { ack_wait_ms, deliveries_max, marks_kept_s, .. } = self.notifier;
        ensure!(ack_wait_ms > 0, "notifier.ack_wait_ms must be greater than zero");
        ensure!(deliveries_max > 0, "notifier.deliveries_max must be greater than zero");
        ensure!(
            marks_kept_s > self.broker.max_age_s,
            "notifier.marks_kept_s must be greater than broker.max_age_s; otherwise a customer could be notified twice"
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
    fn consumer_marks_must_be_kept_longer_than_the_brokers_events() {
        let mut options = Options::default();
        assert!(options.customers().is_ok());
        options.notifier.marks_kept_s = options.broker.max_age_s;
        assert!(options.customers().unwrap_err().to_string().contains("marks_kept_s"));
    }
}
