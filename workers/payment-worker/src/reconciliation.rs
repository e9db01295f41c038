//! `ReconciliationWorkflow`: compares the ledger, the switch statements and the workflows, on a Temporal Schedule
//! (S0.15, S0.16).
//!
//! A reconciliation run is one long activity. It moves no money. Its heartbeats carry its progress: if its worker dies, another
//! worker continues the run from the last heartbeat (S1.6).

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use payment_protocol::drift::Tolerance;
use reconciliation::{Reconciler, ReconciliationProgress, ReconciliationReport};
use serde::{Deserialize, Serialize};
use service_kit::error_chain;
use temporalio_client::schedules::{
    CreateScheduleOptions, ScheduleAction, ScheduleError, ScheduleOverlapPolicy, ScheduleSpec,
};
use temporalio_client::tonic::Status;
use temporalio_client::{Client, ClientOptions};
use temporalio_common::RetryPolicy;
use temporalio_macros::{activities, workflow, workflow_methods};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use temporalio_sdk::{ActivityOptions, WorkflowContext, WorkflowResult};
use workflow_api::TemporalOptions;

use crate::activities::retryable;
use crate::config::PaymentWorkerOptions;

/// Prefix of the id of the schedule with a window, and of its workflows' ids.
const SCHEDULE: &str = "reconciliation";
/// The same of the schedule that compares everything.
const FULL_SCHEDULE: &str = "reconciliation-of-everything";
/// Longest reconciliation run. A million payments take minutes.
const RUN_TIMEOUT: Duration = Duration::from_secs(3 * 3_600);
/// A run without a heartbeat for this long continues on another worker.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(60);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// The workflow's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconciliationInput {
    /// From which age a difference counts as drift.
    #[serde(flatten)]
    pub tolerance: Tolerance,
    /// Only what is open, and what changed in the last seconds of this number, is compared; `None`: everything. Absent in the schedules
    /// of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_s: Option<i64>,
}

/// The workflow's result; the ledger holds the full report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconciliationSummary {
    /// The reconciliation run in the ledger.
    pub reconciliation_id: i64,
    /// Payments that were compared.
    pub payments: u64,
    /// Records that could not be read, and why.
    pub not_compared: Vec<String>,
    /// Open drift by kind; kinds without drift are absent.
    pub drift: BTreeMap<String, u64>,
}

impl From<ReconciliationReport> for ReconciliationSummary {
    fn from(report: ReconciliationReport) -> Self {
        Self {
            reconciliation_id: report.reconciliation_id,
            payments: report.payments,
            not_compared: report.not_compared,
            drift: report
                .drift
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(drift, count)| (drift.as_str().to_owned(), count))
                .collect(),
        }
    }
}

/// The workflow of one reconciliation run.
#[workflow]
#[derive(Default)]
pub struct ReconciliationWorkflow;

#[workflow_methods]
impl ReconciliationWorkflow {
    /// Completes one reconciliation run, with as many attempts as it needs.
    #[run(name = "ReconciliationWorkflow")]
    pub async fn run(
        ctx: &mut WorkflowContext<Self>,
        input: ReconciliationInput,
    ) -> WorkflowResult<ReconciliationSummary> {
        let options = ActivityOptions::with_start_to_close_timeout(RUN_TIMEOUT)
            .heartbeat_timeout(HEARTBEAT_TIMEOUT)
            .retry_policy(
                RetryPolicy::builder()
                    .initial_interval(Duration::from_secs(5))
                    .maximum_interval(Duration::from_secs(300))
                    .build(),
            )
            .summary("Compare ledger, switch statements and workflows".to_owned())
            .build();
        Ok(ctx.execute_activity(ReconciliationActivities::run_reconciliation, input, options).await?)
    }
}

/// Dependencies of the reconciliation activity.
pub struct ReconciliationActivities {
    /// Compares the ledger, the switch statements and the workflows.
    pub reconciler: Reconciler,
}

#[activities]
impl ReconciliationActivities {
    /// Completes one reconciliation run. An attempt continues where the last heartbeat of the attempt before was.
    #[activity(name = "run_reconciliation")]
    pub async fn run_reconciliation(
        self: Arc<Self>,
        ctx: ActivityContext,
        input: ReconciliationInput,
    ) -> Result<ReconciliationSummary, ActivityError> {
        let latest = Mutex::new(last_heartbeat(&ctx));
        let read_latest = || latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let progress = |progress: &ReconciliationProgress| {
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress.clone());
        };
        let mut run = pin!(async {
            match read_latest() {
                Some(previous) => self.reconciler.resume(previous, &progress).await,
                None => self.reconciler.run(input.tolerance, input.window_s, &progress).await,
            }
        });
        let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
        loop {
            tokio::select! {
                report = &mut run => {
                    let error = match report {
                        Ok(report) => return Ok(report.into()),
                        Err(error) => error,
                    };
                    let _ = ctx.record_heartbeat(read_latest()).await;
                    return Err(retryable("reconciliation_failed", &error_chain(&error), None));
                }
                // A lost heartbeat costs at most work that is done again.
                _ = heartbeat.tick() => {
                    let _ = ctx.record_heartbeat(read_latest()).await;
                }
                // Also at a shutdown of the worker.
                () = ctx.cancelled() => {
                    let _ = ctx.record_heartbeat(read_latest()).await;
                    return Err(ActivityError::cancelled());
                }
            }
        }
    }
}

/// The progress in the last heartbeat of the attempt before; `None` if there was none. A progress that this version cannot read
/// is not continued: the run begins anew.
fn last_heartbeat(ctx: &ActivityContext) -> Option<ReconciliationProgress> {
    match ctx.heartbeat_details().deserialize::<Option<ReconciliationProgress>>() {
        Ok(progress) => progress.flatten(),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the payment-worker could not read the progress of an earlier attempt of the reconciliation run; the run begins anew"
            );
            None
        }
    }
}

/// One schedule of reconciliation runs.
pub(crate) struct ReconciliationSchedule {
    client: Client,
    /// Its id at Temporal.
    pub(crate) id: String,
    /// Prefix of its workflows' ids.
    name: &'static str,
    task_queue: String,
    interval: Duration,
    window_s: Option<i64>,
}

/// The schedules of reconciliation runs: with a window, and of everything.
///
/// # Errors
/// Temporal's client refuses its options.
pub(crate) fn schedules(
    client: &Client,
    TemporalOptions { namespace, task_queue, .. }: &TemporalOptions,
    options: &PaymentWorkerOptions,
) -> anyhow::Result<Vec<ReconciliationSchedule>> {
    // Without the keys of payloads: a schedule keeps its input longer than a key is kept, and this input names nobody.
    let in_clear = ClientOptions::new(namespace.to_owned()).build();
    let client = Client::new(client.connection().clone(), in_clear)?;
    let schedules = [
        (SCHEDULE, options.reconciliation_interval_s, Some(i64::from(options.reconciliation_window_s))),
        (FULL_SCHEDULE, options.full_reconciliation_interval_s, None),
    ];
    let schedules = schedules.into_iter().filter(|(_, interval_s, _)| *interval_s > 0);
    Ok(schedules
        .map(|(name, interval_s, window_s)| ReconciliationSchedule {
            client: client.clone(),
            id: format!("{name}-{task_queue}"),
            name,
            task_queue: task_queue.clone(),
            interval: Duration::from_secs(interval_s),
            window_s,
        })
        .collect())
}

impl ReconciliationSchedule {
    /// Creates it. An existing schedule stays as it is: an operator may have changed it.
    ///
    /// # Errors
    /// Temporal's status: `AlreadyExists`, a refusal, or no answer.
    pub(crate) async fn create(&self) -> Result<(), Status> {
        let input = ReconciliationInput { tolerance: Tolerance::default(), window_s: self.window_s };
        let action = ScheduleAction::start_workflow(
            ReconciliationWorkflow::run,
            input,
            self.task_queue.as_str(),
            self.name,
        );
        let options = CreateScheduleOptions::builder()
            .action(action)
            .spec(ScheduleSpec::from_interval(self.interval))
            .overlap_policy(ScheduleOverlapPolicy::Skip)
            .build();
        match self.client.create_schedule(self.id.clone(), options).await {
            Ok(_) => Ok(()),
            Err(ScheduleError::Rpc(status)) => Err(status),
            Err(error) => Err(Status::invalid_argument(error_chain(&error))),
        }
    }
}
