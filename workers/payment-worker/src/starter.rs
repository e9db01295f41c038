//! The starter: pulls accepted payments and starts them, and looks after those that went quiet.
//!
//! There is one way to start. A burst of acceptances costs latency here, never a compensation: the
//! rows wait, and are started at the pace at which they get to the switch.

use std::time::Duration;

use futures::future::join_all;
use payment_ledger::steps::start::{START_CHANNEL, StartablePayment};
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::cause::ReserveRefusal;
use sqlx::postgres::PgListener;
use temporalio_client::errors::{WorkflowInteractionError, WorkflowStartError};
use temporalio_client::{
    Client, UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionStatus, WorkflowIdReusePolicy,
    WorkflowStartOptions,
};
use tokio_util::sync::CancellationToken;

use crate::attributes;
use crate::config::WorkerSection;
use crate::workflow::InterBankPaymentWorkflow;

/// Payments taken in one look.
const BATCH: i64 = 50;
/// How long a taken payment is left to its taker, in milliseconds.
const LEASE_MS: i64 = 10_000;

/// Starts workflows on this process's own worker.
pub(crate) struct Starter {
    pub(crate) ledger: Ledger,
    pub(crate) client: Client,
    pub(crate) task_queue: String,
    pub(crate) options: WorkerSection,
}

/// What became of one start.
enum Started {
    /// It runs, now or since before.
    Running,
    /// Temporal did not answer: try again after the lease.
    Missed,
    /// Temporal refused it.
    Refused,
}

impl Starter {
    /// Looks for accepted payments until `stop`.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let mut nudges = self.listen().await;
        while !stop.is_cancelled() {
            let looked = self.look().await;
            if let Err(error) = &looked {
                tracing::warn!(
                    error = error as &dyn std::error::Error,
                    "looking for accepted payments failed"
                );
            }
            // A full batch means that there is more.
            if matches!(looked, Ok(started) if started >= usize::try_from(BATCH).unwrap_or(usize::MAX)) {
                continue;
            }
            let pause = tokio::time::sleep(Duration::from_millis(self.options.poll_interval_ms));
            tokio::select! {
                () = stop.cancelled() => break,
                () = pause => {}
                () = nudge(&mut nudges) => {}
            }
        }
    }

    /// Looks after payments that went quiet until `stop`.
    pub(crate) async fn watch_idle(&self, stop: CancellationToken) {
        // An alert watches it: the first would not be seen to have been added.
        metrics::counter!("payments_resumed_total").increment(0);
        while !stop.is_cancelled() {
            if let Err(error) = self.look_after_idle().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "looking after idle payments failed"
                );
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(Duration::from_millis(self.options.liveness_check_interval_ms)) => {}
            }
        }
    }

    /// A connection that hears nudges; without one the starter looks by its interval alone.
    async fn listen(&self) -> Option<PgListener> {
        let mut listener = PgListener::connect_with(self.ledger.pool()).await.ok()?;
        listener.listen(START_CHANNEL).await.ok()?;
        Some(listener)
    }

    async fn look(&self) -> Result<usize, LedgerError> {
        let taken = self.ledger.claim_accepted(BATCH, LEASE_MS, self.options.max_in_flight).await?;
        let count = taken.len();
        for outcome in join_all(taken.into_iter().map(|payment| self.start_or_refuse(payment))).await {
            outcome?;
        }
        Ok(count)
    }

    async fn start_or_refuse(&self, startable: StartablePayment) -> Result<(), LedgerError> {
        let id = startable.payment.payment_id.clone();
        if startable.cancel_requested {
            return self.ledger.refuse_unreserved(&id, ReserveRefusal::CustomerCancel).await;
        }
        if startable.too_late {
            return self.ledger.refuse_unreserved(&id, ReserveRefusal::StartedTooLate).await;
        }
        match self.start(startable).await {
            Started::Running => self.ledger.mark_started(&id).await,
            Started::Missed => Ok(()),
            Started::Refused => self.ledger.record_start_rejection(&id).await,
        }
    }

    async fn start(&self, startable: StartablePayment) -> Started {
        let StartablePayment { payment, workflow_id, .. } = startable;
        let summary = format!("{} by {}", payment.money, payment.profile.switch);
        let details =
            format!("Payment {} of {} by {}", payment.payment_id, payment.money, payment.profile.switch);
        let options = WorkflowStartOptions::new(self.task_queue.clone(), workflow_id.clone())
            .id_reuse_policy(WorkflowIdReusePolicy::RejectDuplicate)
            .enable_eager_workflow_start(true)
            .search_attributes(attributes::of(&payment))
            .static_summary(summary)
            .static_details(details)
            .build();
        let payment_id = payment.payment_id.clone();
        match self.client.start_workflow(InterBankPaymentWorkflow::run, payment, options).await {
            Ok(_) => {
                metrics::counter!("payments_started_total").increment(1);
                tracing::info!(payment.id = %payment_id, workflow.id = workflow_id, "payment started");
                Started::Running
            }
            // Started before: by another starter, or by this one whose answer was lost (S1.7).
            Err(WorkflowStartError::AlreadyStarted { .. }) => Started::Running,
            Err(WorkflowStartError::Rpc(status)) if is_missed(status.code() as i32) => {
                tracing::warn!(payment.id = %payment_id, %status, "Temporal did not take the start; trying again");
                Started::Missed
            }
            Err(error) => {
                tracing::error!(payment.id = %payment_id, error = &error as &dyn std::error::Error, "Temporal refused the start");
                Started::Refused
            }
        }
    }

    /// A workflow that is closed or gone while its payment is open is followed by the next resume.
    async fn look_after_idle(&self) -> Result<(), LedgerError> {
        for idle in self.ledger.claim_idle(BATCH, self.options.liveness_check_after_ms).await? {
            if !self.is_lost(&idle.workflow_id).await {
                continue;
            }
            let Some(next) = self.ledger.resume(&idle.payment_id, &idle.workflow_id).await? else { continue };
            tracing::error!(
                payment.id = %idle.payment_id,
                lost = idle.workflow_id,
                next = next.workflow_id,
                "the payment's workflow is lost; taking it up again"
            );
            metrics::counter!("payments_resumed_total").increment(1);
            // A start that is missed is found lost again by the next look.
            match self.start(next).await {
                Started::Running => self.ledger.mark_started(&idle.payment_id).await?,
                Started::Missed => {}
                Started::Refused => self.ledger.record_start_rejection(&idle.payment_id).await?,
            }
        }
        Ok(())
    }

    async fn is_lost(&self, workflow_id: &str) -> bool {
        let handle = self.client.get_workflow_handle::<UntypedWorkflow>(workflow_id);
        match handle.describe(WorkflowDescribeOptions::default()).await {
            Ok(found) => matches!(
                found.status(),
                WorkflowExecutionStatus::Completed
                    | WorkflowExecutionStatus::Failed
                    | WorkflowExecutionStatus::Canceled
                    | WorkflowExecutionStatus::Terminated
                    | WorkflowExecutionStatus::TimedOut
            ),
            Err(WorkflowInteractionError::NotFound(_)) => true,
            // No answer is no loss.
            Err(_) => false,
        }
    }
}

/// Waits for a nudge; for ever when there is nobody to hear it from.
async fn nudge(nudges: &mut Option<PgListener>) {
    match nudges {
        Some(listener) => {
            if listener.try_recv().await.is_err() {
                // The pool reconnects by itself; until then the interval serves.
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending().await,
    }
}

/// gRPC codes that say nothing about the start itself: cancelled, unknown, deadline exceeded,
/// resource exhausted, aborted, internal, unavailable.
fn is_missed(code: i32) -> bool {
    matches!(code, 1 | 2 | 4 | 8 | 10 | 13 | 14)
}
