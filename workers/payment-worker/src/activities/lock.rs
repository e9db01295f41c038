//! The lock of a destination account at a switch without references (S1.5), as far as it is more than
//! workflow code: which lock it is, and whether its holder has ended.
//!
//! The destination is looked up here, so that no outside account number gets into a history.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::sync::Arc;

use payment_ledger::{Ledger, LedgerError};
use payment_protocol::Payment;
use payment_protocol::ids::PaymentId;
use payment_protocol::keys;
use serde::{Deserialize, Serialize};
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{Client, WorkflowSignalOptions, WorkflowStartOptions};
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::{again, no_outcome};
use crate::account_lock::{AccountLockWorkflow, LockState, Waiter};

/// Input of get_lock and release_lock.
#[derive(Debug, Serialize, Deserialize)]
pub struct LockInput {
    /// Who wants the lock, or no longer does.
    pub payment: Payment,
    /// The payment's workflow, which the lock is passed to.
    pub workflow_id: String,
}

/// The ledger and Temporal, shared by all activities of this process.
pub struct LockActivities {
    /// Knows the destination and whether a payment has ended.
    pub ledger: Ledger,
    /// Where the locks run.
    pub client: Client,
    /// Where they are worked on; also what keeps this bank's locks apart from another's.
    pub task_queue: String,
    /// Grants of one run of a lock, before it goes on as a new one.
    pub grants_max: u32,
}

impl LockActivities {
    async fn lock_id(&self, payment: &Payment) -> Result<String, LedgerError> {
        let lookup_key = self.ledger.lookup_key(&payment.payment_id).await?;
        Ok(keys::account_lock_id(&self.task_queue, &payment.profile.switch, &lookup_key.destination_account))
    }
}

#[activities]
impl LockActivities {
    /// Asks for the destination account. The lock is started by the first who asks.
    #[activity]
    pub async fn get_lock(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: LockInput,
    ) -> Result<(), ActivityError> {
        let lock_id = self.lock_id(&input.payment).await.map_err(no_outcome)?;
        let waiter = Waiter { workflow_id: input.workflow_id, payment_id: input.payment.payment_id };
        let options = WorkflowStartOptions::new(self.task_queue.clone(), lock_id)
            .static_summary(format!("account lock of {}", input.payment.profile.switch))
            .build();
        let started = self.client.signal_with_start_workflow(
            AccountLockWorkflow::run,
            LockState::empty(self.grants_max),
            AccountLockWorkflow::get_lock,
            waiter,
            options,
        );
        started.await.map(|_| ()).map_err(|error| again("lock_not_asked", &error.to_string(), None))
    }

    /// Gives the account back, or stops waiting for it. A lock that is not there needs no telling.
    #[activity]
    pub async fn release_lock(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: LockInput,
    ) -> Result<(), ActivityError> {
        let lock_id = self.lock_id(&input.payment).await.map_err(no_outcome)?;
        let handle = self.client.get_workflow_handle::<AccountLockWorkflow>(lock_id);
        let waiter = Waiter { workflow_id: input.workflow_id, payment_id: input.payment.payment_id };
        let signalled =
            handle.signal(AccountLockWorkflow::release_lock, waiter, WorkflowSignalOptions::default());
        match signalled.await {
            Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => Ok(()),
            Err(error) => Err(again("lock_not_told", &error.to_string(), None)),
        }
    }

    /// Whether the holder's payment has ended, in our ledger. Open is an error, which the server repeats:
    /// time alone never passes the account on.
    #[activity]
    pub async fn holder_ended(
        self: Arc<Self>,
        _ctx: ActivityContext,
        payment_id: PaymentId,
    ) -> Result<(), ActivityError> {
        match self.ledger.final_state_of(&payment_id).await.map_err(no_outcome)? {
            Some(_) => Ok(()),
            None => Err(again("holder_open", "the payment that holds the account has not ended", None)),
        }
    }
}
