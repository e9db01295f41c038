//! `AccountLockWorkflow`: locks one destination account at a switch without references (S1.5).
//!
//! The lock only orders payments to one account, oldest first. Safety comes from the ledger, which permits no
//! attempt while another payment to the account is in progress. The lock may therefore be lost or started anew
//! at any time.
//!
//! The lock passes on when the holder's payment has ended in our ledger, never by time. A holder whose workflow
//! was lost keeps the lock until its recovery workflow has ended the payment; one whose row was lost, until its
//! workflow has ended.

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
    SyncWorkflowContext, TimerOptions, WorkflowCancellationToken, WorkflowContext, WorkflowContextView,
    WorkflowResult,
};

use crate::activities::lock::{LockActivities, LockHolder};
use crate::payment_port::detached_wait;
use crate::workflow::InterBankPaymentWorkflow;

pub use state::{LockState, Waiter};

/// Longest attempt to read the holder's payment.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// First interval between two checks of the holder, doubled each time. A holder that releases the lock is checked
/// immediately.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest interval between two checks of the holder.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The lock of one account.
#[workflow]
pub struct AccountLockWorkflow {
    state: LockState,
}

#[workflow_methods]
impl AccountLockWorkflow {
    /// Signals may arrive before `run`, so the queue exists from the start.
    #[init]
    pub fn new(_ctx: &WorkflowContextView, state: LockState) -> Self {
        Self { state }
    }

    /// Grants the lock to one payment after the other, until no payment holds or waits.
    #[run(name = "AccountLockWorkflow")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<()> {
        loop {
            // A signal that arrives while this run completes fails the completion and is processed first.
            let held = ctx.state_mut(|lock| lock.state.holder.is_some() || lock.state.grant_next());
            if !held {
                return Ok(());
            }
            if ctx.state_mut(|lock| std::mem::take(&mut lock.state.notify_holder)) {
                notify_holder(ctx).await;
            }
            if holder_has_ended(ctx).await {
                ctx.state_mut(|lock| lock.state.holder = None);
            }
            let in_use = ctx.state(|lock| lock.state.holder.is_some() || !lock.state.waiting.is_empty());
            if in_use
                && (ctx.continue_as_new_suggested() || ctx.state(|lock| lock.state.reached_grants_max()))
            {
                let next = ctx.state(|lock| lock.state.for_next_run());
                ctx.continue_as_new(next, ContinueAsNewOptions::default())?;
            }
        }
    }

    /// A payment requests the lock.
    #[signal(name = "getLock")]
    pub fn get_lock(&mut self, _ctx: &mut SyncWorkflowContext<Self>, waiter: Waiter) {
        self.state.request(waiter);
    }

    /// A payment releases the lock, or withdraws its request.
    #[signal(name = "releaseLock")]
    pub fn release_lock(&mut self, _ctx: &mut SyncWorkflowContext<Self>, waiter: Waiter) {
        self.state.release(&waiter);
    }

    /// The holder and the waiting payments.
    #[query(name = "lockState")]
    pub fn lock_state(&self, _ctx: &WorkflowContextView) -> LockState {
        self.state.clone()
    }
}

/// Signals the holder that it has the lock. A holder whose workflow no longer exists keeps the lock until its
/// payment has ended.
async fn notify_holder(ctx: &WorkflowContext<AccountLockWorkflow>) {
    let Some(holder) = ctx.state(|lock| lock.state.holder.clone()) else { return };
    let payment = ctx.external_workflow(holder.workflow_id, None);
    let options = SignalWorkflowOptions::builder()
        .cancellation_token(WorkflowCancellationToken::new())
        .summary("Grant the account lock".to_owned())
        .build();
    let _ = payment.signal(InterBankPaymentWorkflow::pass_lock, RawValue::empty(), options).await;
}

/// Waits until the holder's payment has ended (true), or until a signal requires another check (false).
async fn holder_has_ended(ctx: &WorkflowContext<AccountLockWorkflow>) -> bool {
    let Some(holder) = ctx.state(|lock| lock.state.holder.clone()) else { return true };
    ctx.state_mut(|lock| lock.state.recheck_holder = false);
    let options = ActivityOptions::with_start_to_close_timeout(CHECK_TIMEOUT)
        .retry_policy(
            RetryPolicy::builder()
                .initial_interval(CHECK_INTERVAL)
                .maximum_interval(CHECK_INTERVAL_MAX)
                .build(),
        )
        .cancellation_token(WorkflowCancellationToken::new())
        .summary("Check whether the lock holder's payment has ended".to_owned())
        .build();
    let mut check =
        pin!(ctx.execute_activity(LockActivities::check_lock_holder, LockHolder::Waiter(holder), options));
    let signalled = |lock: &AccountLockWorkflow| lock.state.recheck_holder || lock.state.notify_holder;
    let mut signal = pin!(ctx.wait_condition_with_options(signalled, detached_wait()));
    let result = select! {
        result = check => Some(result),
        _ = signal => None,
    };
    match result {
        Some(Ok(())) => true,
        // The Temporal server failed the activity although its attempts are not limited.
        Some(Err(_)) => {
            let timer = TimerOptions::builder(CHECK_INTERVAL_MAX)
                .cancellation_token(WorkflowCancellationToken::new())
                .summary("Pause before the next check".to_owned());
            ctx.timer(timer.build()).await;
            false
        }
        None => {
            check.cancel();
            false
        }
    }
}
