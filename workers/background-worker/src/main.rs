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
use monitoring::task::BackgroundTask;
use outbox::nats::Broker;
use payment_ledger::Ledger;
use service_kit::{metrics, serve, shutdown, telemetry};
use workflow_api::Signaller;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    telemetry::init("background-worker");
    let options: config::Options = service_kit::config::load("PAYMENTS", "PAYMENTS_CONFIG")?;
    let stop = shutdown::on_signals();
    let ledger = Ledger::new(options.database.pool("background-worker")?);
    let recorder = metrics::install().context("metrics could not be set up")?;
    measure::start(Process::BackgroundWorker, ledger.pool().clone(), stop.clone());
    BackgroundTask::ALL.iter().for_each(|task| task.succeeded());
    let ready = ledger.clone();
    let health = metrics::routes(recorder, move || {
        let ledger = ready.clone();
        Box::pin(async move { ledger.ping().await.map_err(|error| error.to_string()) })
    });
    let listen = options.background_worker.metrics_listen;
    let server = serve::serve(listen, "PAYMENTS_BACKGROUND_WORKER__METRICS_LISTEN", health, stop.clone());
    let broker = Broker::connect(&options.broker, "background-worker").await?;
    let publishing = publish::relay(ledger.pool(), broker, &options.background_worker)?;
    let signaller = Signaller::new(options.temporal, "background-worker");
    let work = async {
        tokio::join!(
            deliver::run(&ledger, &signaller, &options.background_worker, &stop),
            gauges::run(&ledger, &options.background_worker, &stop),
            audit::run(&ledger, &options.background_worker, &stop),
            keep::run(ledger.pool(), &options.background_worker, &stop),
            publishing.run(&stop),
            seal::run(&ledger, &options.background_worker, &stop),
        );
        Ok(())
    };
    tracing::info!("relay is ready");
    tokio::try_join!(server, work)?;
    tracing::info!("relay has stopped");
    Ok(())
}
