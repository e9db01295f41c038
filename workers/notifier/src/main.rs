//! `notifier`: takes events of payments in and tells the customer, once for each event (S3.6). What is told is a row of
//! `notifications`, written in the transaction that marks the event as taken in; how it reaches a telephone is the business
//! of whoever reads them. It tells the tenants' own webhook endpoints too, by another consumer and over connections of its own:
//! a customer's message never waits for an endpoint. Any number of these processes may run; the broker may come and go.
//!
//! | file | question |
//! |---|---|
//! | `tell` | what does an event do? |
//! | `words` | what is the customer told? |
//! | `webhooks` | how are endpoints told? |
//! | `prune` | what is deleted, and when? |
//! | `config` | how is it set up? |

mod config;
mod prune;
mod tell;
mod webhooks;
mod words;

use std::time::Duration;

use anyhow::Context as _;
use monitoring::measure;
use monitoring::metrics::Process;
use outbox::nats::{Broker, Consumer};
use payment_ledger::Ledger;
use service_kit::{metrics, serve, shutdown, telemetry};

use crate::webhooks::Webhooks;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    telemetry::init("notifier");
    let options: config::Options = service_kit::config::load("PAYMENTS", "PAYMENTS_CONFIG")?;
    let (customers, endpoints) = (options.customers()?, options.endpoints()?);
    let webhooks = options.outbound_webhooks.check()?;
    let stop = shutdown::on_signals();
    let ledger = Ledger::new(options.database.pool("notifier")?);
    let recorder = metrics::install().context("metrics could not be set up")?;
    measure::start(Process::Notifier, ledger.pool().clone(), stop.clone());
    let ready = ledger.clone();
    let health = metrics::routes(recorder, move || {
        let ledger = ready.clone();
        Box::pin(async move { ledger.ping().await.map_err(|error| error.to_string()) })
    });
    let listen = options.notifier.metrics_listen;
    let server = serve::serve(listen, "PAYMENTS_NOTIFIER__METRICS_LISTEN", health, stop.clone());
    let broker = Broker::connect(&options.broker, "notifier").await?;
    let consumer = Consumer::new(broker.clone(), ledger.pool().clone(), tell::TellCustomer, customers);
    let webhooks = Webhooks::new(options.database.pool("notifier-webhooks")?, broker, endpoints, &webhooks)?;
    let kept = Duration::from_secs(options.notifier.marks_kept_s);
    // What was taken in so long ago cannot come again.
    let forget = async || outbox::keep::prune_processed(ledger.pool(), kept).await;
    let work = async {
        tokio::join!(
            consumer.run(&stop),
            webhooks.run(&stop),
            prune::prune("marks of events", forget, &stop)
        );
        Ok(())
    };
    tracing::info!("notifier is ready");
    tokio::try_join!(server, work)?;
    tracing::info!("notifier has stopped");
    Ok(())
}
