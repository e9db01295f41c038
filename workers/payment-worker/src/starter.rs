//! The starter: starts a workflow for each accepted payment, and checks the liveness of open payments.
//!
//! Payments start at the pace at which the switch accepts submits (the in-flight limit). A burst of acceptances only
//! adds latency; it never causes a compensation.

#![expect(clippy::disallowed_methods, reason = "the starter is a loop of the process, not workflow code")]

use std::time::Duration;

use futures::future::join_all;
use payment_ledger::steps::start::{START_CHANNEL, StartablePayment};
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::cause::ReserveRefusal;
use postgres_kit::wake_up::WakeUpListener;
use temporalio_client::errors::{WorkflowInteractionError, WorkflowStartError};
use temporalio_client::tonic::Code;
use temporalio_client::{
    Client, UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionStatus, WorkflowIdReusePolicy,
    WorkflowStartOptions,
};
use tokio_util::sync::CancellationToken;

use crate::attributes;
use crate::config::PaymentWorkerOptions;
use crate::workflow::InterBankPaymentWorkflow;

/// Upper bound of payments claimed at once.
const BATCH: i64 = 50;
/// Lease of a claimed payment, in milliseconds.
const LEASE_MS: i64 = 10_000;

/// Starts workflows on this process's own worker.
pub(crate) struct Starter<'a> {
    pub(crate) ledger: Ledger,
    pub(crate) client: Client,
    pub(crate) task_queue: String,
    pub(crate) options: &'a PaymentWorkerOptions,
}

/// Outcome of starting a workflow.
enum StartOutcome {
    /// The workflow exists, from this start or an earlier one.
    Started,
    /// Temporal's answer is unknown: start again after the lease.
    Unknown,
    /// Temporal refused the start.
    Refused,
}

impl Starter<'_> {
    /// Claims and starts accepted payments until `stop`.
    pub(crate) async fn start_accepted(&self, stop: CancellationToken) {
        let mut wake_up = WakeUpListener::open(self.ledger.pool(), START_CHANNEL).await;
        while !stop.is_cancelled() {
            let claimed = self.start_batch().await;
            if let Err(error) = &claimed {
                tracing::warn!(
                    error = error as &dyn std::error::Error,
                    "the payment-worker could not claim or start accepted payments; it tries again"
                );
            }
            // More payments wait after a full batch.
            if matches!(claimed, Ok(count) if count >= usize::try_from(BATCH).unwrap_or(usize::MAX)) {
                continue;
            }
            let interval = tokio::time::sleep(Duration::from_millis(self.options.poll_interval_ms));
            tokio::select! {
                () = stop.cancelled() => break,
                () = interval => {}
                () = wake_up.wait() => {}
            }
        }
    }

    /// Checks the workflows of idle payments until `stop`.
    pub(crate) async fn check_liveness(&self, stop: CancellationToken) {
        // An alert rule on the counter needs its value before the first increment.
        metrics::counter!("payments_resumed_total").increment(0);
        while !stop.is_cancelled() {
            if let Err(error) = self.recover_lost().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the payment-worker could not check whether open payments have a running workflow; it checks again"
                );
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(Duration::from_millis(self.options.liveness_check_interval_ms)) => {}
            }
        }
    }

    /// Claims and starts one batch; returns its size.
    async fn start_batch(&self) -> Result<usize, LedgerError> {
        let claimed = self.ledger.claim_accepted(BATCH, LEASE_MS, self.options.max_in_flight).await?;
        let count = claimed.len();
        for started in join_all(claimed.into_iter().map(|payment| self.start_or_refuse(payment))).await {
            started?;
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
            StartOutcome::Started => self.ledger.mark_started(&id).await,
            StartOutcome::Unknown => Ok(()),
            StartOutcome::Refused => self.ledger.record_start_rejection(&id).await,
        }
    }

    async fn start(&self, startable: StartablePayment) -> StartOutcome {
        let StartablePayment { payment, workflow_id, .. } = startable;
        let summary = format!("Payment of {} via switch {}", payment.money, payment.profile.switch);
        let details = format!(
            "Payment {} of {} via switch {}",
            payment.payment_id, payment.money, payment.profile.switch
        );
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
                tracing::info!(payment.id = %payment_id, workflow.id = workflow_id, "the payment-worker started the workflow of a payment");
                StartOutcome::Started
            }
            // Started before: by another starter, or by this one if it lost Temporal's answer (S1.7).
            Err(WorkflowStartError::AlreadyStarted { .. }) => StartOutcome::Started,
            Err(WorkflowStartError::Rpc(status)) if !rejects_the_payment(status.code()) => {
                tracing::warn!(
                    payment.id = %payment_id,
                    %status,
                    "Temporal did not confirm the start of a payment's workflow; a payment-worker starts the workflow again after the lease"
                );
                StartOutcome::Unknown
            }
            Err(error) => {
                tracing::error!(
                    payment.id = %payment_id,
                    error = &error as &dyn std::error::Error,
                    "Temporal refused to start the workflow of a payment; the payment waits and a payment-worker tries again"
                );
                StartOutcome::Refused
            }
        }
    }

    /// Starts a recovery workflow for each idle payment whose workflow is closed or does not exist.
    async fn recover_lost(&self) -> Result<(), LedgerError> {
        for idle in self.ledger.claim_idle(BATCH, self.options.liveness_check_after_ms).await? {
            if !self.is_lost(&idle.workflow_id).await {
                continue;
            }
            let recovery = match self.ledger.resume(&idle.payment_id, &idle.workflow_id).await {
                Ok(Some(recovery)) => recovery,
                Ok(None) => continue,
                Err(error @ LedgerError::Unavailable(_)) => return Err(error),
                // The payments after this one must not wait for its repair.
                Err(error) => {
                    tracing::error!(
                        payment.id = %idle.payment_id,
                        error = &error as &dyn std::error::Error,
                        "the payment-worker could not resume an open payment whose workflow is lost; it tries again"
                    );
                    continue;
                }
            };
            tracing::error!(
                payment.id = %idle.payment_id,
                lost = idle.workflow_id,
                recovery = recovery.workflow_id,
                "the workflow of an open payment is lost; the payment-worker starts a recovery workflow for the payment"
            );
            metrics::counter!("payments_resumed_total").increment(1);
            // The next liveness check repeats a start with an unknown outcome.
            match self.start(recovery).await {
                StartOutcome::Started => self.ledger.mark_started(&idle.payment_id).await?,
                StartOutcome::Unknown => {}
                StartOutcome::Refused => self.ledger.record_start_rejection(&idle.payment_id).await?,
            }
        }
        Ok(())
    }

    async fn is_lost(&self, workflow_id: &str) -> bool {
        let handle = self.client.get_workflow_handle::<UntypedWorkflow>(workflow_id);
        match handle.describe(WorkflowDescribeOptions::default()).await {
            Ok(description) => matches!(
                description.status(),
                WorkflowExecutionStatus::Completed
                    | WorkflowExecutionStatus::Failed
                    | WorkflowExecutionStatus::Canceled
                    | WorkflowExecutionStatus::Terminated
                    | WorkflowExecutionStatus::TimedOut
            ),
            Err(WorkflowInteractionError::NotFound(_)) => true,
            // An unreachable server does not mean that the workflow is lost.
            Err(_) => false,
        }
    }
}

/// Whether Temporal's error is about this payment's start. Every other error is about the connection, the namespace or the
/// worker's permission: an expired certificate must not make every accepted payment need an operator.
fn rejects_the_payment(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_about_the_payment_rejects_its_workflow_start() {
        let rejecting: Vec<_> = (0..=16).map(Code::from).filter(|code| rejects_the_payment(*code)).collect();
        assert_eq!(rejecting, [Code::InvalidArgument, Code::OutOfRange]);
    }
}
