//! `ReconciliationWorkflow`: the three books compared, again and again, as a Temporal Schedule (S0.15, S0.16).
//!
//! The reconciliation_run is one long activity that heartbeats: it moves no money and begins anew when its worker dies, and what it
//! had found stays found.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use reconciliation::Tolerance;
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

use crate::activities::{again, chain};

/// Id of the schedule, and beginning of its workflows' ids.
const SCHEDULE: &str = "reconciliation";
/// One reconciliation_run. A million payments take minutes.
const SWEEP: Duration = Duration::from_secs(3 * 3_600);
/// A reconciliation_run that says nothing for so long is given to another worker.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// How often it says how far it is.
const SAY: Duration = Duration::from_secs(10);

/// What a reconciliation_run came to, for the workflow's result; the whole report is in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// The reconciliation in the ledger.
    pub reconciliation_id: i64,
    /// Payments that were compared.
    pub payments: u64,
    /// Books that could not be read, and why.
    pub not_compared: Vec<String>,
    /// What was found and is not closed, by kind; nothing else is there.
    pub drift: BTreeMap<String, u64>,
}

impl From<ReconciliationReport> for Swept {
    fn from(report: ReconciliationReport) -> Self {
        Self {
            reconciliation_id: report.reconciliation_id,
            payments: report.payments,
            not_compared: report.not_compared,
            drift: report
                .drift
                .into_iter()
                .filter(|(_, found)| *found > 0)
                .map(|(drift, found)| (drift.as_str().to_owned(), found))
                .collect(),
        }
    }
}

/// One reconciliation_run.
#[workflow]
#[derive(Default)]
pub struct ReconciliationWorkflow;

#[workflow_methods]
impl ReconciliationWorkflow {
    /// Sweeps once, however often it must begin.
    #[run(name = "ReconciliationWorkflow")]
    pub async fn run(ctx: &mut WorkflowContext<Self>, tolerance: Tolerance) -> WorkflowResult<Swept> {
        let options = ActivityOptions::with_start_to_close_timeout(SWEEP)
            .heartbeat_timeout(HEARTBEAT)
            .retry_policy(
                RetryPolicy::builder()
                    .initial_interval(Duration::from_secs(5))
                    .maximum_interval(Duration::from_secs(300))
                    .build(),
            )
            .summary("compare the three books".to_owned())
            .build();
        Ok(ctx.execute_activity(ReconciliationActivities::reconciliation_run, tolerance, options).await?)
    }
}

/// What a reconciliation_run needs.
pub struct ReconciliationActivities {
    /// Reads the books.
    pub reconciler: Reconciler,
}

#[activities]
impl ReconciliationActivities {
    /// Sweeps, and says how far it is.
    #[activity]
    pub async fn reconciliation_run(
        self: Arc<Self>,
        ctx: ActivityContext,
        tolerance: Tolerance,
    ) -> Result<Swept, ActivityError> {
        let looked_at = AtomicU64::new(0);
        let progress = |so_far| looked_at.store(so_far, Ordering::Relaxed);
        let mut reconciliation_run = pin!(self.reconciler.run(tolerance, &progress));
        let mut say = tokio::time::interval(SAY);
        loop {
            tokio::select! {
                swept = &mut reconciliation_run => {
                    return swept.map(Swept::from).map_err(|error| again("not_swept", &chain(&error), None));
                }
                // A heartbeat that is not heard costs a reconciliation_run begun anew.
                _ = say.tick() => {
                    let _ = ctx.record_heartbeat(looked_at.load(Ordering::Relaxed)).await;
                }
                () = ctx.cancelled() => return Err(ActivityError::cancelled()),
            }
        }
    }
}

/// Has the books compared every `every`. The schedule that is there keeps its own times: people may have changed it.
pub(crate) async fn schedule(client: &Client, task_queue: &str, every: Duration) {
    let action = ScheduleAction::start_workflow(
        ReconciliationWorkflow::run,
        Tolerance::default(),
        task_queue,
        SCHEDULE,
    );
    let options = CreateScheduleOptions::builder()
        .action(action)
        .spec(ScheduleSpec::from_interval(every))
        .overlap_policy(ScheduleOverlapPolicy::Skip)
        .build();
    match client.create_schedule(format!("{SCHEDULE}-{task_queue}"), options).await {
        Ok(_) => tracing::info!(every_s = every.as_secs(), "the books are compared on a schedule"),
        Err(ScheduleError::Rpc(status)) if status.code() == Code::AlreadyExists => {}
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the books are not compared on a schedule"
            );
        }
    }
}
