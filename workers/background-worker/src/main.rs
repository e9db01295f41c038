//! `background-worker`: runs the background tasks of the payment service.
//!
//! The tasks need PostgreSQL. Temporal and the broker may be unavailable: only the task that needs them waits.
//!
//! | module | task |
//! |---|---|
//! | `inbox_delivery` | delivers stored callbacks, cancel requests, final statuses and decisions to workflows |
//! | `account_restoring` | restores customers' accounts without a confirmation in time |
//! | `metrics_collection` | sets the gauges of open payments and backlogs |
//! | `hold_audit` | checks every open hold against its payment and the journal |
//! | `partition_maintenance` | creates and drops partitions of idempotency keys, deletes old events, erases personal fields |
//! | `outbox_publishing` | publishes outbox events to the broker |
//! | `journal_sealing` | extends the hash chain over new journal entries |
//! | `heads_export` | appends the signed heads of the hash chains to a file |
//! | `periodic` | repeats a task until the process stops |

mod account_restoring;
mod config;
mod heads_export;
mod hold_audit;
mod inbox_delivery;
mod journal_sealing;
mod metrics_collection;
mod outbox_publishing;
mod partition_maintenance;
mod periodic;

use anyhow::Context as _;
use monitoring::background_task::BackgroundTask;
use monitoring::measure;
use monitoring::metrics::Process;
use outbox::nats::Broker;
use payment_ledger::Ledger;
use service_kit::{metrics, published, serve, shutdown, telemetry};
use workflow_api::Signaller;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    telemetry::init("background-worker");
    let options: config::Options = service_kit::config::load("PAYMENTS", "PAYMENTS_CONFIG")?;
    let stop = shutdown::on_signals();
    let traces = trace_kit::Exporter::start("background-worker")?;
    let ledger = Ledger::new(options.database.pool("background-worker")?);
    let recorder = metrics::install().context("the metrics of the background-worker could not be set up")?;
    measure::start(Process::BackgroundWorker, ledger.pool().inner().clone(), stop.clone());
    // Until its first success, a task counts as successful since the start of the process.
    BackgroundTask::ALL.iter().for_each(|task| task.record_success());
    tokio::spawn(metrics::log_warnings(ledger.readiness(), stop.clone()));
    let health = metrics::routes(recorder, ledger.readiness());
    let listen = options.background_worker.metrics_listen;
    let server = serve::serve(listen, "PAYMENTS_BACKGROUND_WORKER__METRICS_LISTEN", health, stop.clone());
    options.temporal.check()?;
    options.background_worker.check()?;
    let heads = options.background_worker.heads_export()?;
    let erase_after = options.background_worker.erase_after()?;
    if let Some(export) = &heads {
        let public_key = export.key.public()?;
        tracing::info!(path = %export.path.display(), %public_key, "the background-worker exports the signed heads of the hash chains");
    }
    published::refuse(&[("background_worker.metrics_listen", listen)], options.temporal.secrets())?;
    let broker = Broker::connect(&options.broker, "background-worker").await?;
    let relay = outbox_publishing::relay(ledger.pool(), broker, &options.background_worker)?;
    let signaller = Signaller::new(options.temporal, "background-worker");
    let tasks = async {
        tokio::join!(
            inbox_delivery::run(&ledger, &signaller, &options.background_worker, &stop),
            account_restoring::run(&ledger, &options.background_worker, &stop),
            metrics_collection::run(&ledger, &options.background_worker, erase_after, &stop),
            hold_audit::run(&ledger, &options.background_worker, &stop),
            partition_maintenance::run(&ledger, &options.background_worker, erase_after, &stop),
            relay.run(&stop),
            journal_sealing::run(&ledger, &options.background_worker, &stop),
            heads_export::run(&ledger, heads.as_ref(), &stop),
        );
        Ok(())
    };
    tracing::info!("the process background-worker is ready");
    let ended = tokio::try_join!(server, tasks);
    traces.stop().await;
    ended?;
    tracing::info!("the process background-worker has stopped");
    Ok(())
}
