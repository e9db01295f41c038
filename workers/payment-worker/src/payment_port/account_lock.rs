//! The payment's side of the account lock ([`crate::account_lock`]).

use std::pin::pin;
use std::time::Duration;

use futures::FutureExt as _;
use payment_protocol::port::AccountLockOutcome;
use temporalio_sdk::workflows::select;
use temporalio_sdk::{CancellableFuture as _, TimerOptions, WorkflowCancellationToken};

use super::TemporalPaymentPort;
use super::events::detached_wait;
use crate::activities::lock::{LockActivities, LockInput};
use crate::workflow::InterBankPaymentWorkflow;

impl TemporalPaymentPort<'_> {
    /// Requests the account lock and waits for it, for the length of the SLA at most. A lock that is not
    /// granted in time is released again.
    pub(super) async fn acquire_account_lock(&self) -> AccountLockOutcome {
        self.account_lock_requested.set(true);
        let step = || LockActivities::get_lock;
        self.ledger_step(step, || self.lock_input(), "Request the account lock").await;
        let timer = TimerOptions::builder(Duration::from_millis(self.payment.profile.sla_ms))
            .cancellation_token(WorkflowCancellationToken::new())
            .summary("Wait for the account lock".to_owned())
            .build();
        let mut timer = pin!(self.ctx.timer(timer));
        let holds_lock = |workflow: &InterBankPaymentWorkflow| workflow.holds_account_lock;
        let mut granted = pin!(self.ctx.wait_condition_with_options(holds_lock, detached_wait()));
        let mut cancel_request = pin!(self.next_cancel_request().fuse());
        let outcome = select! {
            _ = granted => AccountLockOutcome::Held,
            _ = cancel_request => AccountLockOutcome::CustomerCancel,
            _ = timer => AccountLockOutcome::NotGranted,
        };
        if outcome != AccountLockOutcome::NotGranted {
            timer.cancel();
        }
        if outcome != AccountLockOutcome::Held {
            self.release_account_lock().await;
        }
        outcome
    }

    pub(super) async fn release_account_lock(&self) {
        let step = || LockActivities::release_lock;
        self.ledger_step(step, || self.lock_input(), "Release the account lock").await;
    }

    fn lock_input(&self) -> LockInput {
        LockInput { payment_id: self.id(), workflow_id: self.ctx.workflow_id().to_owned() }
    }
}
