//! Activities of the account lock at a switch without references (S1.5): request, release, and the check of the
//! holder.
//!
//! The activities look up the destination account, so that no external account number enters a history.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::sync::Arc;

use payment_ledger::{Ledger, LedgerError};
use payment_protocol::ids::{PaymentId, SwitchName};
use payment_protocol::keys;
use serde::{Deserialize, Serialize};
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{Client, WorkflowExecutionStatus, WorkflowSignalOptions, WorkflowStartOptions};
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::{ledger_failure, retryable};
use crate::account_lock::{AccountLockWorkflow, LockState, Waiter};
use crate::recovery::workflow_status;

/// Input of get_lock and release_lock.
#[derive(Debug, Serialize, Deserialize)]
pub struct LockInput {
    /// The payment that requests or releases the lock.
    pub payment_id: PaymentId,
    /// The payment's workflow, which receives the lock.
    pub workflow_id: String,
}

/// Input of check_lock_holder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LockHolder {
    /// The holder, with its workflow.
    Waiter(Waiter),
    /// The same from a lock workflow of an earlier release.
    Payment(PaymentId),
}

/// Dependencies of the lock activities, shared by all activities of this process.
pub struct LockActivities {
    /// Knows the destination account and the payment's final state.
    pub ledger: Ledger,
    /// Starts and signals the lock workflows.
    pub client: Client,
    /// Task queue of the lock workflows; part of their ids, which keeps the locks of several banks apart.
    pub task_queue: String,
    /// Grants after which a lock workflow continues as a new run.
    pub grants_max: u32,
}

impl LockActivities {
    /// The switch, and the Workflow ID of the lock of the payment's destination account.
    async fn lock(&self, payment_id: &PaymentId) -> Result<(SwitchName, String), ActivityError> {
        let (switch, account) = self.ledger.account_at_switch(payment_id).await.map_err(ledger_failure)?;
        let id = keys::account_lock_id(&self.task_queue, &switch, &account);
        Ok((switch, id))
    }

    /// Whether this workflow does not run any more. Not known of a holder without one.
    async fn has_ended(&self, workflow_id: Option<&str>) -> Result<bool, ActivityError> {
        use WorkflowExecutionStatus::{Canceled, Completed, Failed, Terminated, TimedOut};
        let Some(workflow_id) = workflow_id else { return Ok(false) };
        let status = workflow_status(&self.client, workflow_id).await;
        let status = status.map_err(|detail| retryable("lock_holder_unknown", &detail, None))?;
        Ok(matches!(status, None | Some(Completed | Failed | Canceled | Terminated | TimedOut)))
    }
}

#[activities]
impl LockActivities {
    /// Requests the lock of the destination account, and starts its workflow if none runs.
    #[activity(name = "get_lock")]
    pub async fn get_lock(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: LockInput,
    ) -> Result<(), ActivityError> {
        let (switch, lock_id) = self.lock(&input.payment_id).await?;
        let waiter = Waiter { workflow_id: input.workflow_id, payment_id: input.payment_id };
        let options = WorkflowStartOptions::new(self.task_queue.clone(), lock_id)
            .static_summary(format!("Account lock at switch {switch}"))
            .build();
        let started = self.client.signal_with_start_workflow(
            AccountLockWorkflow::run,
            LockState::empty(self.grants_max),
            AccountLockWorkflow::get_lock,
            waiter,
            options,
        );
        started.await.map(|_| ()).map_err(|error| retryable("lock_not_requested", &error.to_string(), None))
    }

    /// Releases the lock, or withdraws the request. Succeeds if the lock workflow does not exist.
    #[activity(name = "release_lock")]
    pub async fn release_lock(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: LockInput,
    ) -> Result<(), ActivityError> {
        let (_, lock_id) = self.lock(&input.payment_id).await?;
        let handle = self.client.get_workflow_handle::<AccountLockWorkflow>(lock_id);
        let waiter = Waiter { workflow_id: input.workflow_id, payment_id: input.payment_id };
        let signalled =
            handle.signal(AccountLockWorkflow::release_lock, waiter, WorkflowSignalOptions::default());
        match signalled.await {
            Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => Ok(()),
            Err(error) => Err(retryable("lock_not_released", &error.to_string(), None)),
        }
    }

    /// Succeeds once the holder's payment has ended in our ledger. An open payment is a retryable error: time alone
    /// never passes the lock on. A payment whose row is lost ends with its workflow, which operators terminate once its transfer's status
    /// is known.
    #[activity(name = "check_lock_holder")]
    pub async fn check_lock_holder(
        self: Arc<Self>,
        _ctx: ActivityContext,
        holder: LockHolder,
    ) -> Result<(), ActivityError> {
        let (payment_id, workflow_id) = match holder {
            LockHolder::Waiter(holder) => (holder.payment_id, Some(holder.workflow_id)),
            LockHolder::Payment(payment_id) => (payment_id, None),
        };
        let (kind, detail) = match self.ledger.final_state_of(&payment_id).await {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => ("lock_holder_open", "has not ended"),
            Err(LedgerError::UnknownPayment(_)) if self.has_ended(workflow_id.as_deref()).await? => {
                tracing::warn!(
                    payment.id = payment_id.as_str(),
                    "the account lock passes on from a payment that the ledger does not know, since its workflow has ended"
                );
                return Ok(());
            }
            Err(LedgerError::UnknownPayment(_)) => {
                ("lock_holder_lost", "is not in the ledger; see workflow_without_payment in the runbook")
            }
            Err(error) => return Err(ledger_failure(error)),
        };
        let detail = format!("payment {payment_id} holds the account lock and {detail}");
        Err(retryable(kind, &detail, None))
    }
}
