//! The process: what is started, in which order, and how it stops.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::reconciliation::Reconciler;
use anyhow::Context as _;
use futures::future::try_join_all;
use monitoring::measure;
use monitoring::metrics::Process;
use outbox::Nudge;
use payment_ledger::Ledger;
use service_kit::{metrics, serve, shutdown};
use switch_client::SwitchClient;
use temporalio_client::Client;
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use tokio_util::sync::CancellationToken;
use workflow_api::RunningWorkflows;

use crate::account_lock::AccountLockWorkflow;
use crate::activities::ledger::LedgerActivities;
use crate::activities::lock::LockActivities;
use crate::activities::switch::SwitchActivities;
use crate::activities::{cancel_queue, submit_queue};
use crate::attributes;
use crate::config::Options;
use crate::reconciliation::{self, ReconciliationActivities, ReconciliationWorkflow};
use crate::starter::Starter;
use crate::workflow::InterBankPaymentWorkflow;

/// Pause between two tries to reach Temporal at start-up.
const CONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Runs until SIGTERM.
///
/// # Errors
/// What kept the process from starting or made it end.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let stop = shutdown::on_signals();
    let switches = options.switches.check().context("the switches' configuration is refused")?;
    let ledger = Ledger::new(options.database.pool("payment-worker")?);
    let recorder = metrics::install().context("metrics could not be set up")?;
    measure::start(Process::PaymentWorker, ledger.pool().clone(), stop.clone());
    let mut clients = BTreeMap::new();
    for (name, switch, profile) in switches.iter() {
        clients.insert(name.clone(), SwitchClient::new(switch, profile)?);
    }
    let clients = Arc::new(clients);

    let health = health(recorder, ledger.clone());
    let listen = options.worker.metrics_listen;
    let server = serve::serve(listen, "PAYMENTS_WORKER__METRICS_LISTEN", health, stop.clone());

    let work = async {
        let Some(client) = connect(&options.temporal, &stop).await else { return Ok(()) };
        attributes::register(&client, &options.temporal.namespace).await;
        let runtime = Runtime::from_current_tokio(Default::default())?;
        let prefix = options.temporal.task_queue.clone();
        let grace = Duration::from_millis(options.worker.shutdown_timeout_ms);
        let locks = LockActivities {
            ledger: ledger.clone(),
            client: client.clone(),
            task_queue: prefix.clone(),
            grants_max: options.worker.lock_grants_max,
        };
        let profiles = switches.iter().map(|(_, options, profile)| (options, profile));
        let temporal = RunningWorkflows::new(options.temporal.clone(), "payment-worker");
        let books =
            ReconciliationActivities { reconciler: Reconciler::new(ledger.clone(), profiles, temporal)? };
        let nudge = Nudge::start(ledger.pool().clone(), stop.clone());
        let mut workers = vec![Worker::new(
            &runtime,
            client.clone(),
            WorkerOptions::new(prefix.clone())
                .register_workflow::<InterBankPaymentWorkflow>()?
                .register_workflow::<AccountLockWorkflow>()?
                .register_workflow::<ReconciliationWorkflow>()?
                .register_activities(LedgerActivities { ledger: ledger.clone(), nudge })
                .register_activities(locks)
                .register_activities(books)
                .max_cached_workflows(options.worker.cached_workflows)
                .graceful_shutdown_period(grace)
                .build(),
        )?];
        for name in clients.keys() {
            for queue in [submit_queue(&prefix, name.as_str()), cancel_queue(&prefix, name.as_str())] {
                let activities = SwitchActivities { ledger: ledger.clone(), clients: clients.clone() };
                let worker = WorkerOptions::new(queue)
                    .register_activities(activities)
                    .graceful_shutdown_period(grace)
                    .build();
                workers.push(Worker::new(&runtime, client.clone(), worker)?);
            }
        }
        if let Some(every) = options.worker.reconciliation_interval() {
            reconciliation::schedule(&client, &prefix, every).await;
        }
        let starter = Starter { ledger: ledger.clone(), client, task_queue: prefix, options: options.worker };
        tracing::info!(workers = workers.len(), "payment-worker is ready");
        run_workers(&mut workers, &starter, &stop).await
    };
    tokio::try_join!(server, work)?;
    tracing::info!("payment-worker has stopped");
    Ok(())
}

/// Runs the workers and the starter; at a stop the starter ends first, then the workers finish what
/// is under way.
async fn run_workers(
    workers: &mut [Worker],
    starter: &Starter,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let shutdowns: Vec<_> = workers.iter().map(Worker::shutdown_handle).collect();
    type Running<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;
    let mut running: Vec<Running<'_>> = Vec::new();
    for worker in workers {
        running.push(Box::pin(async move { worker.run().await.context("a worker ended") }));
    }
    let starting = async {
        tokio::join!(starter.run(stop.clone()), starter.watch_idle(stop.clone()));
        for shut_down in shutdowns {
            shut_down();
        }
        Ok(())
    };
    tokio::try_join!(try_join_all(running), starting)?;
    Ok(())
}

/// Connects as soon as Temporal answers; none when stopped before.
async fn connect(options: &workflow_api::TemporalOptions, stop: &CancellationToken) -> Option<Client> {
    let mut said = false;
    loop {
        match options.connect("payment-worker").await {
            Ok(client) => return Some(client),
            Err(error) if !said => {
                tracing::warn!(error = &error as &dyn std::error::Error, "waiting for Temporal");
                said = true;
            }
            Err(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(CONNECT_PAUSE) => {}
        }
    }
}

fn health(recorder: metrics::Metrics, ledger: Ledger) -> axum::Router {
    metrics::routes(recorder, move || {
        let ledger = ledger.clone();
        Box::pin(async move { ledger.ping().await.map_err(|error| error.to_string()) })
    })
}
