//! Step 6: a lock. One workflow per destination account lets one payment through at a time. It needs no lease: a holder that
//! crashes is carried on by another worker and releases the lock itself.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::collections::VecDeque;
use std::sync::Arc;

use temporalio_client::{Client, WorkflowStartOptions};
use temporalio_macros::{activities, workflow, workflow_methods};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use temporalio_sdk::{SignalWorkflowOptions, SyncWorkflowContext, WorkflowContext, WorkflowResult};

use crate::order::Order;
use crate::step_2_activity::{BankActivities, options};

/// The lock of one account: a queue of payments.
#[workflow]
#[derive(Default)]
pub struct AccountLock {
    waiting: VecDeque<String>,
    holder: Option<String>,
}

#[workflow_methods]
impl AccountLock {
    /// Ends when nobody holds the lock or waits for it; the next request starts it again.
    #[run(name = "AccountLock")]
    pub async fn run(ctx: &mut WorkflowContext<Self>, _: ()) -> WorkflowResult<()> {
        while let Some(next) = ctx.state_mut(|lock| {
            lock.holder = lock.waiting.pop_front();
            lock.holder.clone()
        }) {
            let payment = ctx.external_workflow(next, None);
            let granted =
                payment.signal(LockedPayment::granted, String::new(), SignalWorkflowOptions::default()).await;
            // A payment that has ended cannot release the lock.
            if granted.is_ok() {
                ctx.wait_condition(|lock| lock.holder.is_none()).await?;
            }
        }
        Ok(())
    }

    /// A payment asks for the lock. A repeated request changes nothing.
    #[signal(name = "request")]
    pub fn request(&mut self, _ctx: &mut SyncWorkflowContext<Self>, payment: String) {
        if self.holder.as_ref() != Some(&payment) && !self.waiting.contains(&payment) {
            self.waiting.push_back(payment);
        }
    }

    /// The holder releases the lock.
    #[signal(name = "release")]
    pub fn release(&mut self, _ctx: &mut SyncWorkflowContext<Self>, payment: String) {
        if self.holder.as_ref() == Some(&payment) {
            self.holder = None;
        }
    }
}

/// A payment that submits only while it holds the lock of its destination account.
#[workflow]
#[derive(Default)]
pub struct LockedPayment {
    is_granted: bool,
}

#[workflow_methods]
impl LockedPayment {
    #[run(name = "LockedPayment")]
    pub async fn run(ctx: &mut WorkflowContext<Self>, order: Order) -> WorkflowResult<String> {
        ctx.execute_activity(LockActivities::request_lock, order.clone(), options()).await?;
        ctx.wait_condition(|payment| payment.is_granted).await?;
        ctx.execute_activity(BankActivities::submit, order.clone(), options()).await?;
        let lock = ctx.external_workflow(lock_id(&order), None);
        lock.signal(AccountLock::release, order.payment_id, SignalWorkflowOptions::default()).await?;
        Ok("submitted".to_owned())
    }

    /// The lock is this payment's until it releases it.
    #[signal(name = "granted")]
    pub fn granted(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _: String) {
        self.is_granted = true;
    }
}

/// The Workflow ID of the lock of the payment's destination account: the natural key.
fn lock_id(order: &Order) -> String {
    format!("lock:{}", order.destination)
}

/// Reaches the lock from a payment.
pub struct LockActivities {
    pub client: Client,
    pub queue: String,
}

#[activities]
impl LockActivities {
    /// Signals the lock, and starts it if nobody holds it: one call, so no request is lost between the two.
    #[activity(name = "request_lock")]
    pub async fn request_lock(
        self: Arc<Self>,
        _ctx: ActivityContext,
        order: Order,
    ) -> Result<(), ActivityError> {
        let options = WorkflowStartOptions::new(self.queue.clone(), lock_id(&order)).build();
        let payment = order.payment_id;
        let requested = self.client.signal_with_start_workflow(
            AccountLock::run,
            (),
            AccountLock::request,
            payment,
            options,
        );
        requested.await.map(|_| ()).map_err(|error| anyhow::Error::from(error).into())
    }
}
