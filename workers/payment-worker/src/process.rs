//! Start-up and shutdown of the process.

#![expect(clippy::disallowed_methods, reason = "the process waits for Temporal outside workflow code")]

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::reconciliation::Reconciler;
use anyhow::Context as _;
use futures::future::join_all;
use monitoring::measure;
use monitoring::metrics::Process;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::ids::SwitchName;
use service_kit::metrics::Readiness;
use service_kit::task::Trigger;
use service_kit::{metrics, published, serve, shutdown};
use switch_client::{SecretsOf, SwitchClient};
use temporalio_client::Client;
use temporalio_common::worker::{VersioningBehavior, WorkerDeploymentOptions, WorkerDeploymentVersion};
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use workflow_api::{ConnectError, PaymentWorkflows};

use crate::account_lock::AccountLockWorkflow;
use crate::activities::debit::DebitActivities;
use crate::activities::first_steps::FirstStepsActivities;
use crate::activities::ledger::LedgerActivities;
use crate::activities::local_submits::{LOCAL_SUBMITS_MAX, LocalSubmits};
use crate::activities::lock::LockActivities;
use crate::activities::switch::{SWITCH_HEARTBEAT_INTERVAL, SwitchActivities};
use crate::activities::{cancel_queue, submit_queue};
use crate::config::{Options, PaymentWorkerOptions};
use crate::crash_points::ActivityCrashPoints;
use crate::namespace;
use crate::reconciliation::{ReconciliationActivities, ReconciliationWorkflow};
use crate::sdk_metrics;
use crate::starter::Starter;
use crate::traces::{self, ActivitySpans};
use crate::until_answered::until_answered;
use crate::workflow::InterBankPaymentWorkflow;
use crate::{recalls, restore, temporal_setup};

/// Pause between two wake-up notifications of this process to the outbox relay, half of it in a quiet moment. The first one is sent at once, so a payment
/// alone does not wait; under load a round of the relay then publishes the events of several payments. S3.5 allows 500 ms.
const WAKE_UP_PAUSE: Duration = Duration::from_millis(200);
/// Longest build id, in characters.
const BUILD_ID_MAX: usize = 100;
/// Workflow tasks at once, beside those that hold a submit at a switch.
const WORKFLOW_TASKS_MAX: usize = 100;
/// Ordinary activities of the main task queue at once.
const ACTIVITIES_MAX: usize = 100;
/// Time for polls, cancels and recalls to end by themselves at a shutdown. They may wait for a hung switch, and another worker
/// repeats what was abandoned.
const ABANDON_AFTER: Duration = Duration::from_secs(1);
/// Time for which payments wait for Temporal's answers to its set-up; then they go on, since it may have been set up before.
const SET_UP_AWAITED: Duration = Duration::from_secs(20);

/// Runs until SIGTERM.
///
/// # Errors
/// The process could not start, or a part of it failed.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let stop = shutdown::on_signals();
    let exporter = trace_kit::Exporter::start("payment-worker").context("traces cannot be exported")?;
    let switches = options
        .switches
        .check(SecretsOf::Requests)
        .context("the configuration of the switches is invalid")?;
    let listeners = [("worker.metrics_listen", options.worker.metrics_listen)];
    published::refuse(&listeners, switches.secrets().chain(options.temporal.secrets()))?;
    let ledger = Ledger::new(options.database.pool("payment-worker")?);
    options.temporal.check()?;
    options.worker.check()?;
    let recorder = metrics::install().context("the metrics of the payment-worker could not be set up")?;
    measure::start(Process::PaymentWorker, ledger.pool().inner().clone(), stop.clone());
    let mut switch_clients = BTreeMap::new();
    for (name, switch, profile) in switches.iter() {
        switch_clients.insert(name.clone(), switch.kind.connect(switch, profile)?);
    }

    tokio::spawn(metrics::log_warnings(ledger.readiness(), stop.clone()));
    let mut loops = JoinSet::new();
    // Whatever is configured today: a payment has the profile of its acceptance.
    loops.spawn(restore::run(ledger.clone(), stop.clone()));
    for (name, client) in &switch_clients {
        loops.spawn(recalls::run(ledger.clone(), name.clone(), Arc::clone(client), stop.clone()));
    }
    let loops = watch(loops, stop.clone());
    let (waits_for, waiting) = watch::channel(Some("Temporal"));
    let health = metrics::routes(recorder, readiness(ledger.readiness(), waiting));
    let listen = options.worker.metrics_listen;
    let server = serve::serve(listen, "PAYMENTS_WORKER__METRICS_LISTEN", health, stop.clone());

    let work = async {
        let Some(client) = connect(&options.temporal, &stop).await else { return Ok(()) };
        waits_for.send_replace(Some("the Temporal namespace that has the workflows of open payments"));
        if !namespace::wait_for_recorded(&client, &options.temporal, &ledger, &stop).await? {
            return Ok(());
        }
        waits_for.send_replace(Some("the ledger's open payments, or Temporal's schedules"));
        let profiles = switches.iter().map(|(_, options, profile)| (options, profile));
        let running = PaymentWorkflows::new(options.temporal.clone(), "payment-worker");
        let local_submits = Arc::new(LocalSubmits::new(switch_clients.keys()));
        let worker_set = WorkerSet {
            runtime: Runtime::from_current_tokio(sdk_metrics::runtime_options()?)?,
            client: client.clone(),
            task_queue: options.temporal.task_queue.clone(),
            ledger: ledger.clone(),
            local_submits: local_submits.clone(),
            switch_clients: Arc::new(switch_clients),
            options: &options.worker,
        };
        let reconciler = Reconciler::new(ledger.clone(), profiles, running)?;
        let wake_relay = start_wake_ups(ledger.clone(), stop.clone());
        local_submits.follow_settings(ledger.clone(), stop.clone()).await;
        let mut workers = vec![worker_set.payments(reconciler, wake_relay)?];
        for name in worker_set.switch_clients.keys() {
            workers.extend(worker_set.switch(name)?);
        }
        for name in worker_set.unconfigured_switches(&stop).await {
            workers.extend(worker_set.switch(&name)?);
        }
        let answered = CancellationToken::new();
        let mut set_up =
            pin!(temporal_setup::run(&client, &options.temporal, &options.worker, &answered, &stop));
        let is_set_up = tokio::select! {
            set_up = &mut set_up => set_up.map(|()| true)?,
            _ = timeout(SET_UP_AWAITED, answered.cancelled()) => false,
        };
        // A worker ends where Temporal does not answer at its start.
        if !is_set_up {
            namespace::wait_for_recorded(&client, &options.temporal, &ledger, &stop).await?;
        }
        if stop.is_cancelled() {
            return Ok(());
        }
        let starter =
            Starter { ledger, client: client.clone(), temporal: &options.temporal, options: &options.worker };
        waits_for.send_replace(None);
        tracing::info!(workers = workers.len(), "the process payment-worker is ready");
        let mut running = pin!(run_workers(workers, &starter, &stop));
        if !is_set_up {
            tokio::select! {
                ended = &mut running => return ended,
                set_up = &mut set_up => set_up?,
            }
        }
        running.await
    };
    let ended = tokio::try_join!(server, work, loops);
    exporter.stop().await;
    let (_, (), panicked) = ended?;
    panicked.map_or(Ok(()), Err).context("a loop of the payment-worker panicked")?;
    tracing::info!("the process payment-worker has stopped");
    Ok(())
}

/// The process can work once the database answers and nothing else is waited for.
fn readiness(
    database: impl Fn() -> Readiness + Clone + Send + Sync + 'static,
    waiting: watch::Receiver<Option<&'static str>>,
) -> impl Fn() -> Readiness + Clone + Send + Sync + 'static {
    move || {
        let (database, waiting) = (database(), *waiting.borrow());
        Box::pin(async move {
            let warnings = database.await?;
            match waiting {
                Some(missing) => {
                    Err(format!("the payment-worker starts no workflow yet: it waits for {missing}"))
                }
                None => Ok(warnings),
            }
        })
    }
}

/// Waits until the loops have ended. A loop that panics ends the process, which is started again: without its loop, it would go on as if
/// nothing was due.
async fn watch(mut loops: JoinSet<()>, stop: CancellationToken) -> anyhow::Result<Option<JoinError>> {
    while let Some(ended) = loops.join_next().await {
        if let Err(panicked) = ended {
            stop.cancel();
            return Ok(Some(panicked));
        }
    }
    Ok(None)
}

/// Wake-up notifications to the outbox relay, after the transactions of events, with the pauses of a [`Trigger`].
fn start_wake_ups(ledger: Ledger, stop: CancellationToken) -> Trigger {
    Trigger::start(WAKE_UP_PAUSE, stop, move || {
        let ledger = ledger.clone();
        async move {
            if let Err(error) = outbox::wake_relay(ledger.pool()).await {
                // The relay polls, so it only publishes the event a little later.
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the payment-worker could not send a wake-up notification to the outbox relay; the relay finds the events by polling"
                );
            }
        }
    })
}

/// Builds the Temporal workers of this process.
struct WorkerSet<'a> {
    runtime: Runtime,
    client: Client,
    /// The main task queue, and the prefix of the switches' queues.
    task_queue: String,
    ledger: Ledger,
    switch_clients: Arc<BTreeMap<SwitchName, Arc<dyn SwitchClient>>>,
    local_submits: Arc<LocalSubmits>,
    options: &'a PaymentWorkerOptions,
}

impl WorkerSet<'_> {
    fn shutdown_timeout(&self) -> Duration {
        Duration::from_millis(self.options.shutdown_timeout_ms)
    }

    /// The worker of the main task queue: every workflow, and the activities of the ledger.
    fn payments(&self, reconciler: Reconciler, wake_relay: Trigger) -> anyhow::Result<Worker> {
        let locks = LockActivities {
            ledger: self.ledger.clone(),
            client: self.client.clone(),
            task_queue: self.task_queue.clone(),
            grants_max: self.options.lock_grants_max,
        };
        let ledger = || LedgerActivities { ledger: self.ledger.clone(), wake_relay: wake_relay.clone() };
        let (for_both, switch) = (Arc::new(ledger()), Arc::new(self.switch_activities()));
        let first_steps = FirstStepsActivities { ledger: for_both.clone(), switch: switch.clone() };
        let debit = DebitActivities { ledger: for_both, switch };
        // Submits within workflow tasks hold their slots while a switch hangs, and leave those of the other workflows.
        let slots = WORKFLOW_TASKS_MAX + self.switch_clients.len() * LOCAL_SUBMITS_MAX;
        let mut options = WorkerOptions::new(self.task_queue.clone())
            .deployment_options(self.deployment()?)
            .tuner(fixed_slots(slots))
            .register_workflow::<InterBankPaymentWorkflow>()?
            .register_workflow::<AccountLockWorkflow>()?
            .register_workflow::<ReconciliationWorkflow>()?
            .register_activities(first_steps)
            .register_activities(debit)
            .register_activities(ledger())
            .register_activities(locks)
            .register_activities(ReconciliationActivities { reconciler })
            .max_cached_workflows(self.options.cached_workflows)
            .graceful_shutdown_period(self.shutdown_timeout())
            .build();
        self.surround_activities(&mut options);
        if trace_kit::is_exporting() {
            options.workflow_interceptor(traces::workflow_spans());
        }
        Ok(Worker::new(&self.runtime, self.client.clone(), options)?)
    }

    /// Without a build id there is no versioning, and Temporal does not write each workflow to its visibility store once more, after its
    /// first task. The workers of the switches have no version: activities are compatible from one release to the next.
    fn deployment(&self) -> anyhow::Result<WorkerDeploymentOptions> {
        let build_id = &self.options.build_id;
        if build_id.is_empty() {
            return Ok(WorkerDeploymentOptions::from_build_id(String::new()));
        }
        let is_allowed = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
        anyhow::ensure!(
            build_id.len() <= BUILD_ID_MAX && build_id.chars().all(is_allowed),
            "worker.build_id is {build_id:?}: use 1 to {BUILD_ID_MAX} characters of A-Z a-z 0-9 . _ -"
        );
        anyhow::ensure!(
            !self.task_queue.contains(['.', ':']) && !self.task_queue.starts_with("__"),
            "temporal.task_queue {:?} names the deployment of worker.build_id: Temporal allows no dot and no colon in it, nor __ at its beginning",
            self.task_queue
        );
        let version = WorkerDeploymentVersion::builder()
            .deployment_name(self.task_queue.clone())
            .build_id(build_id.clone())
            .build();
        // A workflow is replayed by the release that ran it: no release needs to replay another one's histories, after an upgrade or a rollback.
        Ok(WorkerDeploymentOptions::new(version)
            .use_worker_versioning(true)
            .default_versioning_behavior(VersioningBehavior::Pinned)
            .build())
    }

    fn switch_activities(&self) -> SwitchActivities {
        SwitchActivities {
            ledger: self.ledger.clone(),
            clients: self.switch_clients.clone(),
            local_submits: self.local_submits.clone(),
        }
    }

    /// Adds what surrounds each activity.
    fn surround_activities(&self, options: &mut WorkerOptions) {
        if cfg!(debug_assertions) {
            options.activity_inbound_interceptor(ActivityCrashPoints);
        }
        if trace_kit::is_exporting() {
            options.activity_inbound_interceptor(ActivitySpans);
        }
    }

    /// Two workers for a switch: one for submits, one for the other activities.
    fn switch(&self, name: &SwitchName) -> anyhow::Result<Vec<Worker>> {
        let mut workers = Vec::new();
        let for_submits = self.shutdown_timeout();
        for (queue, shutdown_timeout) in [
            (submit_queue(&self.task_queue, name.as_str()), for_submits),
            (cancel_queue(&self.task_queue, name.as_str()), for_submits.min(ABANDON_AFTER)),
        ] {
            let mut options = WorkerOptions::new(queue)
                // The SDK's default is a checksum of the whole program, read at each start.
                .deployment_options(WorkerDeploymentOptions::from_build_id(String::new()))
                .register_activities(self.switch_activities())
                .graceful_shutdown_period(shutdown_timeout)
                .default_heartbeat_throttle_interval(SWITCH_HEARTBEAT_INTERVAL)
                .build();
            self.surround_activities(&mut options);
            workers.push(Worker::new(&self.runtime, self.client.clone(), options)?);
        }
        Ok(workers)
    }

    /// The switches of open payments that are configured no longer. Without a worker, their cancels would wait for ever; with one, they get
    /// no answer, and operators decide after the switch's retention.
    async fn unconfigured_switches(&self, stop: &CancellationToken) -> Vec<SwitchName> {
        let log = |error: &LedgerError| {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "the payment-worker could not read the switches of the open payments; it tries again before it begins"
            );
        };
        let open = until_answered(async || self.ledger.switches_of_open_payments().await, log, stop).await;
        let unconfigured: Vec<_> =
            open.into_iter().flatten().filter(|name| !self.switch_clients.contains_key(name)).collect();
        for switch in &unconfigured {
            tracing::error!(
                %switch,
                "payments of a switch are open that is not configured: nothing is sent to it, their cancels get no answer, and operators decide after the switch's retention; configure [switches.{switch}] until they have ended"
            );
        }
        unconfigured
    }
}

/// A worker's slots: `slots` for workflow tasks and as many for local activities.
fn fixed_slots(slots: usize) -> TunerHolder {
    TunerHolder::builder()
        .workflow_task_slot_supplier(FixedSizeSlotSupplier::new(slots))
        .local_activity_task_slot_supplier(FixedSizeSlotSupplier::new(slots))
        .activity_task_slot_supplier(FixedSizeSlotSupplier::new(ACTIVITIES_MAX))
        .nexus_task_slot_supplier(FixedSizeSlotSupplier::new(ACTIVITIES_MAX))
        .build()
}

/// Runs the workers and the starter. At a shutdown, and if one of them fails, the starter ends first; then the workers finish their
/// running activities.
async fn run_workers(
    workers: Vec<Worker>,
    starter: &Starter<'_>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let shutdowns: Vec<_> = workers.iter().map(Worker::shutdown_handle).collect();
    let ending = stop.child_token();
    let workers = join_all(workers.into_iter().map(|worker| async {
        let ended = on_its_own_thread(worker).await;
        ending.cancel();
        ended
    }));
    let starting = async {
        let accepted = async {
            starter.start_accepted(&ending).await;
            Ok(())
        };
        let started = tokio::try_join!(accepted, starter.check_liveness(&ending));
        // Also after an error: the SDK panics in a worker that is dropped while it processes a workflow.
        for shut_down in shutdowns {
            shut_down();
        }
        started
    };
    let (ended, started) = tokio::join!(workers, starting);
    started?;
    ended.into_iter().collect()
}

/// Runs a worker on a thread of its own: its workflows are bound to one thread, and would be polled with those of all others there.
async fn on_its_own_thread(mut worker: Worker) -> anyhow::Result<()> {
    let (ended, end) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    std::thread::Builder::new().name("temporal-worker".to_owned()).spawn(move || {
        let result = runtime.block_on(worker.run()).context("a Temporal worker failed");
        // The process has ended without it.
        let _ = ended.send(result);
    })?;
    end.await.context("the thread of a Temporal worker panicked")?
}

/// Connects as soon as Temporal answers; `None` if `stop` comes first.
async fn connect(options: &workflow_api::TemporalOptions, stop: &CancellationToken) -> Option<Client> {
    // Of several payment-workers of a host, it says which one carries a workflow.
    let identity = format!("payment-worker pid {}", std::process::id());
    let ask = async || options.connect_measured(&identity, Some(sdk_metrics::client_meter())).await;
    let log = |error: &ConnectError| {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "Temporal did not answer the payment-worker; it connects again until Temporal answers"
        );
    };
    until_answered(ask, log, stop).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without its loop the process would go on, and restore nobody.
    #[tokio::test]
    async fn a_loop_that_panics_ends_the_process() {
        let stop = CancellationToken::new();
        let mut loops = JoinSet::new();
        let until_stop = stop.clone();
        loops.spawn(async move { until_stop.cancelled().await });
        loops.spawn(async { panic!("a defect") });
        let panicked = watch(loops, stop.clone()).await;
        assert!(panicked.is_ok_and(|panicked| panicked.is_some()) && stop.is_cancelled());

        let mut loops = JoinSet::new();
        let until_stop = stop.clone();
        loops.spawn(async move { until_stop.cancelled().await });
        assert!(watch(loops, stop).await.is_ok_and(|panicked| panicked.is_none()));
    }
}
