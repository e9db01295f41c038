//! `AccountLockWorkflow`: who has a destination account at a switch without references (S1.5).
//!
//! It gives order: payments to one account go one after the other, oldest first. What makes it safe is
//! not this workflow but the ledger, which lets no attempt out while another payment to the account is
//! under way. So the lock may be lost or started anew at any time.
//!
//! The account is passed on when the holder's payment has ended in our ledger, never by time. A holder
//! whose workflow died keeps it until the run that follows has ended the payment.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

mod state;

use std::pin::pin;
use std::time::Duration;

use temporalio_common::RetryPolicy;
use temporalio_common::data_converters::RawValue;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::workflows::select;
use temporalio_sdk::{
    ActivityOptions, CancellableFuture as _, ContinueAsNewOptions, SignalWorkflowOptions,
    SyncWorkflowContext, TimerOptions, WaitConditionOptions, WorkflowCancellationToken, WorkflowContext,
    WorkflowContextView, WorkflowResult,
};

use crate::activities::lock::LockActivities;
use crate::workflow::InterBankPaymentWorkflow;

pub use state::{LockState, Waiter};

/// Bound of one look at the holder's payment.
const LOOK: Duration = Duration::from_secs(10);
/// First pause between two looks, doubled each time. A holder that gives the account back is looked at at
/// once.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between two looks.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The lock of one account.
#[workflow]
pub struct AccountLockWorkflow {
    state: LockState,
}

#[workflow_methods]
impl AccountLockWorkflow {
    /// Signals may arrive before `run`: the queue is there from the start.
    #[init]
    pub fn new(_ctx: &WorkflowContextView, state: LockState) -> Self {
        Self { state }
    }

    /// Passes the account from one to the next until nobody holds or waits.
    #[run(name = "AccountLockWorkflow")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<()> {
        loop {
            // A signal that comes while this run completes fails the completion, and is heard first.
            let held = ctx.state_mut(|lock| lock.state.holder.is_some() || lock.state.grant());
            if !held {
                return Ok(());
            }
            if ctx.state_mut(|lock| std::mem::take(&mut lock.state.tell)) {
                tell(ctx).await;
            }
            if has_ended(ctx).await {
                ctx.state_mut(|lock| lock.state.holder = None);
            }
            let goes_on = ctx.state(|lock| lock.state.holder.is_some() || !lock.state.waiting.is_empty());
            if goes_on && (ctx.continue_as_new_suggested() || ctx.state(|lock| lock.state.is_long())) {
                let next = ctx.state(|lock| lock.state.next_run());
                ctx.continue_as_new(next, ContinueAsNewOptions::default())?;
            }
        }
    }

    /// A payment wants the account.
    #[signal(name = "getLock")]
    pub fn get_lock(&mut self, _ctx: &mut SyncWorkflowContext<Self>, waiter: Waiter) {
        self.state.ask(waiter);
    }

    /// A payment gives the account back, or no longer waits for it.
    #[signal(name = "releaseLock")]
    pub fn release_lock(&mut self, _ctx: &mut SyncWorkflowContext<Self>, waiter: Waiter) {
        self.state.let_go(&waiter);
    }

    /// Who holds the account and who waits.
    #[query(name = "lockState")]
    pub fn lock_state(&self, _ctx: &WorkflowContextView) -> LockState {
        self.state.clone()
    }
}

/// Tells the holder that the account is its own. One that is not there any more holds it all the same,
/// until its payment has ended.
async fn tell(ctx: &WorkflowContext<AccountLockWorkflow>) {
    let Some(holder) = ctx.state(|lock| lock.state.holder.clone()) else { return };
    let payment = ctx.external_workflow(holder.workflow_id, None);
    let options = SignalWorkflowOptions::builder()
        .cancellation_token(WorkflowCancellationToken::new())
        .summary("pass the account on".to_owned())
        .build();
    let _ = payment.signal(InterBankPaymentWorkflow::pass_lock, RawValue::empty(), options).await;
}

/// Waits until the holder's payment has ended, or until its word asks for another look.
async fn has_ended(ctx: &WorkflowContext<AccountLockWorkflow>) -> bool {
    let Some(holder) = ctx.state(|lock| lock.state.holder.clone()) else { return true };
    ctx.state_mut(|lock| lock.state.look_again = false);
    let look = ActivityOptions::with_start_to_close_timeout(LOOK)
        .retry_policy(
            RetryPolicy::builder().initial_interval(LOOK_PAUSE).maximum_interval(LOOK_PAUSE_MAX).build(),
        )
        .cancellation_token(WorkflowCancellationToken::new())
        .summary("has the holder's payment ended?".to_owned())
        .build();
    let mut ended = pin!(ctx.execute_activity(LockActivities::holder_ended, holder.payment_id, look));
    let said = |lock: &AccountLockWorkflow| lock.state.look_again || lock.state.tell;
    let detached =
        WaitConditionOptions::builder().cancellation_token(WorkflowCancellationToken::new()).build();
    let mut word = pin!(ctx.wait_condition_with_options(said, detached));
    let answer = select! {
        answer = ended => Some(answer),
        _ = word => None,
    };
    match answer {
        Some(Ok(())) => true,
        // The server gave up, which it does for no reason of ours.
        Some(Err(_)) => {
            let pause = TimerOptions::builder(LOOK_PAUSE_MAX);
            ctx.timer(pause.cancellation_token(WorkflowCancellationToken::new()).build()).await;
            false
        }
        None => {
            ended.cancel();
            false
        }
    }
}
