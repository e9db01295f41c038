//! A bank with a broker and a notifier, for the tests of event delivery.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use testkit::process::Process;
use testkit::wait::until;
use testkit::{NatsServer, System, SystemOptions};

/// Time limit for an event or a notification.
pub(crate) const WITHIN: Duration = Duration::from_secs(60);
/// The notifications of a payment that settles.
const SETTLED: [&str; 2] = ["transfer_pending", "transfer_sent"];
/// Metric: events that the outbox relay has published.
pub(crate) const PUBLISHED: &str = "outbox_published_total";

/// A bank with a broker and a notifier.
pub(crate) struct EventBank {
    pub(crate) system: System,
    pub(crate) broker: NatsServer,
    pub(crate) notifier: Process,
}

impl EventBank {
    pub(crate) async fn start(name: &str) -> anyhow::Result<Self> {
        Self::start_with(name, SystemOptions::default()).await
    }

    pub(crate) async fn start_with(name: &str, options: SystemOptions) -> anyhow::Result<Self> {
        let broker = NatsServer::start(&format!("{name}-broker")).await?;
        let options = SystemOptions { broker_url: broker.url(), ..options };
        let system = System::start(name, options).await?;
        let notifier = system.start_process("notifier", "PAYMENTS_NOTIFIER__METRICS_LISTEN").await?;
        Ok(Self { system, broker, notifier })
    }

    /// Makes payments and waits until they have settled; returns their ids.
    pub(crate) async fn settle_payments(&self, count: usize) -> anyhow::Result<Vec<String>> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.system.pay("5.00").await?.payment_id);
        }
        for id in &ids {
            self.system.wait_for_state(id, "settled").await?;
        }
        Ok(ids)
    }

    /// The kinds of a payment's notifications in the API, in order.
    async fn notifications(&self, id: &str) -> anyhow::Result<Vec<String>> {
        let payment = self.system.payment(id).await?;
        let notifications = payment["notifications"].as_array().context("no notifications")?;
        Ok(notifications.iter().filter_map(|one| one["kind"].as_str().map(str::to_owned)).collect())
    }

    /// Waits for the last notification of each payment, then compares all of them.
    pub(crate) async fn wait_for_notifications(&self, ids: &[String]) -> anyhow::Result<()> {
        for id in ids {
            until(&format!("{id} has its last notification"), WITHIN, || async {
                Ok(self.notifications(id).await?.iter().any(|kind| kind == SETTLED[1]).then_some(()))
            })
            .await
            .map_err(|error| {
                error.context(self.notifier.log_tail()).context(self.system.background_worker.log_tail())
            })?;
            assert_eq!(self.notifications(id).await?, SETTLED, "{id}");
        }
        Ok(())
    }

    pub(crate) async fn wait_until_published(&self) -> anyhow::Result<()> {
        until("every event is published", WITHIN, || async {
            Ok((outbox::measure(&self.system.database.pool.clone().into()).await?.unpublished == 0)
                .then_some(()))
        })
        .await
    }

    /// A connection to the broker of the test's own.
    pub(crate) async fn jetstream(&self) -> anyhow::Result<async_nats::jetstream::Context> {
        Ok(async_nats::jetstream::new(async_nats::connect(self.broker.url()).await?))
    }

    /// Asserts that the stream has exactly both events of each of these payments, in the order of their sequence numbers.
    /// Republished copies are ignored, since consumers deduplicate them.
    pub(crate) async fn assert_published_in_order(&self, ids: &[String]) -> anyhow::Result<()> {
        let mut stream = self.jetstream().await?.get_stream("EVENTS").await?;
        let state = stream.info().await?.state.clone();
        let mut published: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for position in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(position).await?;
            let event: outbox::Event = serde_json::from_slice(&message.payload)?;
            let sequences = published.entry(event.key).or_default();
            if !sequences.contains(&event.sequence) {
                sequences.push(event.sequence);
            }
        }
        let expected = ids.iter().map(|id| (id.clone(), vec![1, 2])).collect();
        assert_eq!(published, expected);
        Ok(())
    }
}

/// The value of a metric of a process.
///
/// # Errors
/// If the process does not export the metric, for example because it was never counted.
pub(crate) async fn metric(process: &Process, name: &str) -> anyhow::Result<f64> {
    let text = reqwest::get(format!("{}/metrics", process.url())).await?.text().await?;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.with_context(|| format!("metric {name} is not exported"))?.parse().context("not a number")
}
