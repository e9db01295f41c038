//! `notifier`: consumes payment events and notifies the customer once per event (S3.6). A notification is a row of
//! `notifications`, written in the transaction that marks the event as consumed; another system reads the rows and sends them. A
//! second consumer, with a connection pool of its own, writes and sends the tenants' webhook deliveries, so that a notification
//! never waits for an endpoint. Any number of these processes may run, and the broker may be unavailable at times.
//!
//! | file | content |
//! |---|---|
//! | `notify` | the consumer's effect: writes the notification of an event |
//! | `message` | the text of a notification |
//! | `webhooks` | the consumer and the sender of outbound webhooks |
//! | `prune` | periodic deletion of old rows |
//! | `config` | the configuration |

mod config;
mod message;
mod notify;
mod prune;
mod webhooks;

use std::time::Duration;

use anyhow::Context as _;
use monitoring::measure;
use monitoring::metrics::Process;
use outbox::nats::{Broker, Consumer};
use payment_ledger::Ledger;
use service_kit::{metrics, published, serve, shutdown, telemetry};

use crate::webhooks::Webhooks;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    telemetry::init("notifier");
    let options: config::Options = service_kit::config::load("PAYMENTS", "PAYMENTS_CONFIG")?;
    let (customers, endpoints) = (options.customers()?, options.endpoints()?);
    let listeners = [("notifier.metrics_listen", options.notifier.metrics_listen)];
    published::refuse(&listeners, options.outbound_webhooks.secrets())?;
    let webhooks = options.outbound_webhooks.check()?;
    let stop = shutdown::on_signals();
    let traces = trace_kit::Exporter::start("notifier")?;
    let ledger = Ledger::new(options.database.pool("notifier")?);
    let recorder = metrics::install().context("the metrics of the notifier could not be set up")?;
    measure::start(Process::Notifier, ledger.pool().inner().clone(), stop.clone());
    tokio::spawn(metrics::log_warnings(ledger.readiness(), stop.clone()));
    let health = metrics::routes(recorder, ledger.readiness());
    let listen = options.notifier.metrics_listen;
    let server = serve::serve(listen, "PAYMENTS_NOTIFIER__METRICS_LISTEN", health, stop.clone());
    let broker = Broker::connect(&options.broker, "notifier").await?;
    let consumer = Consumer::new(broker.clone(), ledger.pool().clone(), notify::NotifyCustomer, customers);
    let webhooks = Webhooks::new(options.database.pool("notifier-webhooks")?, broker, endpoints, &webhooks)?;
    let retention = Duration::from_secs(options.notifier.marks_kept_s);
    // The broker no longer has events of that age.
    let delete_marks = async || outbox::retention::prune_processed(ledger.pool(), retention).await;
    let work = async {
        tokio::join!(
            consumer.run(&stop),
            webhooks.run(&stop),
            prune::prune("marks of consumed events", delete_marks, &stop)
        );
        Ok(())
    };
    tracing::info!("the process notifier is ready");
    let ended = tokio::try_join!(server, work);
    traces.stop().await;
    ended?;
    tracing::info!("the process notifier has stopped");
    Ok(())
}
