//! `ReconciliationWorkflow`: compares the ledger, the switch statements and the workflows, on a Temporal Schedule
//! (S0.15, S0.16).
//!
//! A reconciliation run is one long activity with heartbeats. It moves no money. If its worker dies, the run starts
//! again; drift that it recorded before stays recorded.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use payment_protocol::drift::Tolerance;
use reconciliation::{Reconciler, ReconciliationReport};
use serde::{Deserialize, Serialize};
use temporalio_client::Client;
use temporalio_client::schedules::{
    CreateScheduleOptions, ScheduleAction, ScheduleError, ScheduleOverlapPolicy, ScheduleSpec,
};
use temporalio_client::tonic::Code;
use temporalio_common::RetryPolicy;
use temporalio_macros::{activities, workflow, workflow_methods};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use temporalio_sdk::{ActivityOptions, WorkflowContext, WorkflowResult};

use crate::activities::{error_chain, retryable};

/// Prefix of the schedule's id and of its workflows' ids.
const SCHEDULE: &str = "reconciliation";
/// Longest reconciliation run. A million payments take minutes.
const RUN_TIMEOUT: Duration = Duration::from_secs(3 * 3_600);
/// A run without a heartbeat for this long starts again on another worker.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(60);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

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
        tolerance: Tolerance,
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
        Ok(ctx.execute_activity(ReconciliationActivities::run_reconciliation, tolerance, options).await?)
    }
}

/// Dependencies of the reconciliation activity.
pub struct ReconciliationActivities {
    /// Compares the ledger, the switch statements and the workflows.
    pub reconciler: Reconciler,
}

#[activities]
impl ReconciliationActivities {
    /// Completes one reconciliation run; each heartbeat carries the number of payments compared so far.
    #[activity(name = "run_reconciliation")]
    pub async fn run_reconciliation(
        self: Arc<Self>,
        ctx: ActivityContext,
        tolerance: Tolerance,
    ) -> Result<ReconciliationSummary, ActivityError> {
        let compared = AtomicU64::new(0);
        let progress = |count| compared.store(count, Ordering::Relaxed);
        let mut run = pin!(self.reconciler.run(tolerance, &progress));
        let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
        loop {
            tokio::select! {
                report = &mut run => {
                    return report
                        .map(ReconciliationSummary::from)
                        .map_err(|error| retryable("reconciliation_failed", &error_chain(&error), None));
                }
                // A lost heartbeat costs at most a run that starts again.
                _ = heartbeat.tick() => {
                    let _ = ctx.record_heartbeat(compared.load(Ordering::Relaxed)).await;
                }
                () = ctx.cancelled() => return Err(ActivityError::cancelled()),
            }
        }
    }
}

/// Creates the reconciliation schedule. An existing schedule stays as it is: an operator may have changed it.
pub(crate) async fn create_schedule(client: &Client, task_queue: &str, interval: Duration) {
    let action = ScheduleAction::start_workflow(
        ReconciliationWorkflow::run,
        Tolerance::default(),
        task_queue,
        SCHEDULE,
    );
    let options = CreateScheduleOptions::builder()
        .action(action)
        .spec(ScheduleSpec::from_interval(interval))
        .overlap_policy(ScheduleOverlapPolicy::Skip)
        .build();
    match client.create_schedule(format!("{SCHEDULE}-{task_queue}"), options).await {
        Ok(_) => {
            tracing::info!(
                interval_s = interval.as_secs(),
                "the payment-worker created the schedule of reconciliation runs at Temporal"
            )
        }
        Err(ScheduleError::Rpc(status)) if status.code() == Code::AlreadyExists => {}
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the payment-worker could not create the schedule of reconciliation runs; no run starts until a payment-worker restarts and creates the schedule"
            );
        }
    }
}
