//! `relay`: what must go on when others crash. Tells workflows again what was stored and not
//! delivered (the webhook crashed, Temporal was down, the workflow was not started yet), measures what is
//! held, by state and age, audits it, seals the journal, keeps the table of idempotency keys, and publishes events. Needs PostgreSQL
//! only; Temporal and the broker may come and go, and what one of them keeps waiting waits alone.

mod audit;
mod config;
mod deliver;
mod gauges;
mod keep;
mod publish;
mod seal;

use anyhow::Context as _;
use monitoring::measure;
use monitoring::metrics::Process;
use monitoring::task::RelayTask;
use outbox::nats::Broker;
use payment_ledger::Ledger;
use service_kit::{metrics, serve, shutdown, telemetry};
use workflow_api::Signaller;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    telemetry::init("relay");
    let options: config::Options = service_kit::config::load("PAYMENTS", "PAYMENTS_CONFIG")?;
    let stop = shutdown::on_signals();
    let ledger = Ledger::new(options.database.pool("relay")?);
    let recorder = metrics::install().context("metrics could not be set up")?;
    measure::start(Process::Relay, ledger.pool().clone(), stop.clone());
    RelayTask::ALL.iter().for_each(|task| task.succeeded());
    let ready = ledger.clone();
    let health = metrics::routes(recorder, move || {
        let ledger = ready.clone();
        Box::pin(async move { ledger.ping().await.map_err(|error| error.to_string()) })
    });
    let listen = options.relay.metrics_listen;
    let server = serve::serve(listen, "PAYMENTS_RELAY__METRICS_LISTEN", health, stop.clone());
    let broker = Broker::connect(&options.broker, "relay").await?;
    let publishing = publish::relay(ledger.pool(), broker, &options.relay)?;
    let signaller = Signaller::new(options.temporal, "relay");
    let work = async {
        tokio::join!(
            deliver::run(&ledger, &signaller, &options.relay, &stop),
            gauges::run(&ledger, &options.relay, &stop),
            audit::run(&ledger, &options.relay, &stop),
            keep::run(ledger.pool(), &options.relay, &stop),
            publishing.run(&stop),
            seal::run(&ledger, &options.relay, &stop),
        );
        Ok(())
    };
    tracing::info!("relay is ready");
    tokio::try_join!(server, work)?;
    tracing::info!("relay has stopped");
    Ok(())
}
