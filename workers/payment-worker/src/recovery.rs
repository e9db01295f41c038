//! The liveness check: looks for open payments whose workflow is lost, and starts a recovery workflow for each.

#![expect(
    clippy::disallowed_methods,
    reason = "the liveness check is a loop of the process, not workflow code"
)]

use std::cell::Cell;
use std::time::Duration;

use payment_ledger::LedgerError;
use payment_ledger::steps::start::IdlePayment;
use service_kit::error_chain;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{Client, UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionStatus};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::bounded;
use crate::namespace::{self, NamespaceError};
use crate::starter::Starter;

/// Upper bound of payments claimed at once.
const BATCH: usize = 50;
/// Payments that are not claimed as long as every workflow is found running, so that the next claim waits for the interval.
const LEFT_WITHOUT_LOSS: usize = 10;
/// Payments that are checked and resumed at once: half of the default pool, so that others get connections, too.
const CHECKS_MAX: usize = 8;
/// Time for Temporal's description of one workflow.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// What Temporal answered about a workflow.
enum Liveness {
    /// The workflow is running.
    Running,
    /// The workflow ended by itself; `settled`: without an error.
    Ended {
        /// The customer was charged, or the bank.
        settled: bool,
    },
    /// The workflow was ended by others, or Temporal has none with this id.
    Lost,
    /// No answer about this workflow: it may be running.
    Unknown(String),
}

impl Starter<'_> {
    /// Checks the workflows of idle payments until `stop`.
    ///
    /// # Errors
    /// [`NamespaceError::Different`]: the connected namespace is no longer the one of the open payments' workflows.
    pub(crate) async fn check_liveness(&self, stop: &CancellationToken) -> Result<(), NamespaceError> {
        // An alert rule on the counter needs its value before the first increment.
        metrics::counter!("payments_resumed_total").increment(0);
        let permits = Semaphore::new(CHECKS_MAX);
        let failure: Cell<Option<String>> = Cell::new(None);
        let found_lost = Cell::new(false);
        let claim = async |capacity: usize| {
            // After a failed check others would fail, too: the next batch waits for the interval.
            let claimed = match failure.take() {
                Some(failure) => Err(failure),
                None => self.claim_idle(claim_limit(capacity, found_lost.take())).await?,
            };
            Ok(claimed.unwrap_or_else(|error| {
                tracing::warn!(
                    error,
                    "the payment-worker could not check whether open payments have a running workflow; it checks again"
                );
                Vec::new()
            }))
        };
        let work = async |idle: IdlePayment| {
            let permit = permits.acquire().await;
            // At a shutdown, claimed payments are left to the next check.
            if permit.is_err() || stop.is_cancelled() {
                return;
            }
            match self.recover_if_lost(&idle).await {
                Ok(was_lost) => found_lost.set(found_lost.get() || was_lost),
                Err(error) => failure.set(Some(error)),
            }
        };
        let interval = Duration::from_millis(self.options.liveness_check_interval_ms);
        bounded::run(BATCH, claim, work, async || tokio::time::sleep(interval).await, stop).await
    }

    /// Claims idle payments. In another namespace every workflow would look lost, so the namespace is compared before each
    /// batch: the server behind the address may have been replaced.
    async fn claim_idle(&self, capacity: usize) -> Result<Result<Vec<IdlePayment>, String>, NamespaceError> {
        match namespace::require_recorded(&self.client, self.temporal, &self.ledger).await {
            Err(different @ NamespaceError::Different { .. }) => return Err(different),
            Err(unavailable) => return Ok(Err(error_chain(&unavailable))),
            Ok(()) => {}
        }
        let limit = i64::try_from(capacity).unwrap_or(i64::MAX);
        let idle = self.ledger.claim_idle(limit, self.options.liveness_check_after_ms).await;
        Ok(idle.map_err(|error| error_chain(&error)))
    }

    /// Starts a recovery workflow if the payment's workflow is closed or does not exist; returns whether it was so. An error means that
    /// Temporal or the database did not answer.
    async fn recover_if_lost(&self, idle: &IdlePayment) -> Result<bool, String> {
        match self.liveness(&idle.workflow_id).await {
            Liveness::Running => return Ok(false),
            Liveness::Unknown(detail) => return Err(detail),
            Liveness::Ended { settled } => {
                let marked =
                    self.ledger.mark_ended_workflow(&idle.payment_id, &idle.workflow_id, settled).await;
                marked.map_err(|error| error_chain(&error))?;
            }
            Liveness::Lost => {}
        }
        let recovery = match self.ledger.resume(&idle.payment_id, &idle.workflow_id).await {
            Ok(Some(recovery)) => recovery,
            Ok(None) => return Ok(true),
            Err(error @ LedgerError::Unavailable(_)) => return Err(error_chain(&error)),
            // Only this payment waits for its repair.
            Err(error) => {
                tracing::error!(
                    payment.id = %idle.payment_id,
                    error = &error as &dyn std::error::Error,
                    "the payment-worker could not resume an open payment whose workflow is lost; it tries again"
                );
                return Ok(true);
            }
        };
        tracing::error!(
            payment.id = %idle.payment_id,
            lost = idle.workflow_id,
            recovery = recovery.workflow_id,
            "the workflow of an open payment is lost; the payment-worker starts a recovery workflow for the payment"
        );
        metrics::counter!("payments_resumed_total").increment(1);
        // The next liveness check repeats a start with an unknown outcome. A full start may come too late, and is then refused, as the
        // first one: Temporal may refuse this workflow for ever.
        let started = match recovery.payment.resume {
            0 => self.start_or_refuse(recovery).await,
            _ => self.start_and_record(recovery).await,
        };
        started.map(|()| true).map_err(|error| error_chain(&error))
    }

    async fn liveness(&self, workflow_id: &str) -> Liveness {
        use WorkflowExecutionStatus::{Canceled, Completed, Failed, Terminated, TimedOut};
        match workflow_status(&self.client, workflow_id).await {
            Ok(Some(Completed)) => Liveness::Ended { settled: true },
            Ok(Some(Failed)) => Liveness::Ended { settled: false },
            Ok(None | Some(Canceled | Terminated | TimedOut)) => Liveness::Lost,
            Ok(Some(_)) => Liveness::Running,
            Err(detail) => Liveness::Unknown(detail),
        }
    }
}

/// The status of a workflow; `None` if Temporal has none with this id. An error says why Temporal did not answer about it.
pub(crate) async fn workflow_status(
    client: &Client,
    workflow_id: &str,
) -> Result<Option<WorkflowExecutionStatus>, String> {
    let handle = client.get_workflow_handle::<UntypedWorkflow>(workflow_id);
    match timeout(DESCRIBE_TIMEOUT, handle.describe(WorkflowDescribeOptions::default())).await {
        Ok(Ok(description)) => {
            workflow_api::described_status(&description).map(Some).map_err(|error| error.to_string())
        }
        Ok(Err(WorkflowInteractionError::NotFound(status))) if workflow_api::is_missing_workflow(&status) => {
            Ok(None)
        }
        Ok(Err(error)) => Err(error_chain(&error)),
        Err(_) => Err("Temporal gave no answer within 5 s".to_owned()),
    }
}

/// How many payments to claim. In a backlog every payment is idle and its workflow runs: checks at full speed would take from Temporal what
/// the payments need to go on, and make more of them idle. Where a workflow is lost, others are, and they are found as fast as can be.
fn claim_limit(capacity: usize, found_lost: bool) -> usize {
    if found_lost { capacity } else { capacity.saturating_sub(LEFT_WITHOUT_LOSS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `bounded::run` claims again without a pause exactly if a claim filled the capacity.
    #[test]
    fn the_liveness_check_pauses_unless_a_workflow_is_lost() {
        for capacity in 1..=BATCH {
            assert!(claim_limit(capacity, false) < capacity, "the next claim waits for the interval");
            assert_eq!(claim_limit(capacity, true), capacity);
        }
        assert_eq!(claim_limit(BATCH, false), 40);
    }
}
