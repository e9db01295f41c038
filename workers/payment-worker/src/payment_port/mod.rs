//! Implements the protocol's [`PaymentPort`] for one workflow run, with activities, signals and timers.
//!
//! Every activity, timer and wait runs under a detached cancellation token: a cancellation of the workflow
//! becomes an event like a customer's cancel request and never interrupts a step.
//!
//! | file | content |
//! |---|---|
//! | `steps` | options and retries of activities |
//! | `events` | the inbox, the workflow's cancellation, the SLA, and polling |
//! | `account_lock` | acquiring and releasing the account lock |
//! | `decisions` | answering operator decisions before the workflow completes |

mod account_lock;
mod decisions;
mod events;
mod steps;

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use futures::FutureExt as _;
use payment_protocol::alert::AlertKind;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::ids::PaymentId;
use payment_protocol::payment::InvalidPayment;
use payment_protocol::port::{
    AccountLockOutcome, CancelOutcome, DebitOutcome, FenceOutcome, NeedsOperatorOutcome, OperatorAlert,
    PaymentPort, RecallOutcome, ReconcileOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome,
    SubmitProgress, WaitOutcome,
};
use payment_protocol::{Payment, PaymentState};
use temporalio_sdk::workflows::select;
use temporalio_sdk::{CancellableFuture as _, WorkflowCancellationToken, WorkflowContext};

pub(crate) use self::events::detached_wait;
use crate::activities::debit::DebitActivities;
use crate::activities::first_steps::{FirstSteps, LocalSubmit};
use crate::activities::ledger::{AlertInput, LedgerActivities, NeedsOperatorInput, ReleaseInput};
use crate::activities::switch::{ApplyDecisionInput, CancelInput, SwitchActivities};
use crate::workflow::InterBankPaymentWorkflow;

/// The payment port of one workflow run.
pub(crate) struct TemporalPaymentPort<'a> {
    ctx: WorkflowContext<InterBankPaymentWorkflow>,
    payment: &'a Payment,
    /// End of the SLA; `None` before the first wait.
    sla_deadline: Cell<Option<SystemTime>>,
    /// Whether the workflow's cancellation was turned into an event; this happens once.
    cancellation_consumed: Cell<bool>,
    account_lock_requested: Cell<bool>,
    /// The submit attempt that was made with reserve, until the payment asks for it.
    local_submit: RefCell<Option<LocalSubmit>>,
    /// How often an operator was called.
    operator_calls: Cell<u32>,
    /// Whether a SUCCESS was not debited because no answer of the switch confirmed it.
    is_unconfirmed: Cell<bool>,
}

impl<'a> TemporalPaymentPort<'a> {
    pub(crate) fn new(ctx: WorkflowContext<InterBankPaymentWorkflow>, payment: &'a Payment) -> Self {
        Self {
            ctx,
            payment,
            sla_deadline: Cell::new(None),
            cancellation_consumed: Cell::new(false),
            account_lock_requested: Cell::new(false),
            local_submit: RefCell::new(None),
            operator_calls: Cell::new(0),
            is_unconfirmed: Cell::new(false),
        }
    }

    fn id(&self) -> PaymentId {
        self.payment.payment_id.clone()
    }
}

impl PaymentPort for TemporalPaymentPort<'_> {
    async fn reject(&self, _invalid: &InvalidPayment) {
        let payment = || self.payment.clone();
        self.ledger_step(|| LedgerActivities::reject, payment, "Reject the invalid payment").await;
    }

    async fn reserve(&self) -> ReserveOutcome {
        if let Some(FirstSteps { reserve, submit }) = self.first_steps().await {
            self.local_submit.replace(submit);
            return reserve;
        }
        let payment = || self.payment.clone();
        let summary = format!("Reserve {}", self.payment.money);
        self.ledger_step(|| LedgerActivities::reserve, payment, &summary).await
    }

    async fn fence_reserve(&self) -> FenceOutcome {
        let payment = || self.payment.clone();
        self.ledger_step(|| LedgerActivities::fence_reserve, payment, "Fence the reserve step").await
    }

    async fn submit(&self) -> SubmitOutcome {
        match self.local_submit.take() {
            None => self.submit_within_budget(Duration::ZERO).await,
            Some(LocalSubmit::Outcome(outcome)) => outcome,
            Some(LocalSubmit::Repeat { retry_after_ms, took_ms, .. }) => {
                let retry_after = Duration::from_millis(retry_after_ms.unwrap_or(0));
                let pause = self.pause_before_second_submit(retry_after).await;
                self.submit_within_budget(pause.saturating_add(Duration::from_millis(took_ms))).await
            }
        }
    }

    async fn reconcile_submission(&self) -> ReconcileOutcome {
        self.ledger_step(|| LedgerActivities::reconcile, || self.id(), "Reconcile the submission").await
    }

    async fn lock_account(&self) -> AccountLockOutcome {
        self.acquire_account_lock().await
    }

    async fn unlock_account(&self) {
        // A recovery workflow releases the lock that the lost workflow requested.
        if self.account_lock_requested.get() || self.payment.resume > 0 {
            self.release_account_lock().await;
        }
    }

    async fn cancel(&self, cause: &Cause, submit: SubmitProgress) -> CancelOutcome {
        let summary = format!("Cancel the transfer at switch {}", self.payment.profile.switch);
        loop {
            let input = CancelInput {
                payment_id: self.id(),
                cause: cause.clone(),
                submit_scheduled: submit != SubmitProgress::NotScheduled,
                submit_accepted: submit == SubmitProgress::Accepted,
            };
            let options = self.switch_options(WorkflowCancellationToken::new(), &summary);
            let mut cancel = pin!(self.ctx.execute_activity(SwitchActivities::cancel, input, options));
            // A FAILURE may be a final reject, which the next attempt reads from the ledger without a question; unless a query must confirm it.
            let profile = &self.payment.profile;
            let may_be_final = profile.reject_is_final && !profile.confirms_by_query(self.payment.money);
            let reported = move |workflow: &InterBankPaymentWorkflow| {
                workflow.inbox.iter().any(|event| match event {
                    WaitOutcome::SuccessReported => true,
                    WaitOutcome::FailureReported { .. } => may_be_final,
                    _ => false,
                })
            };
            let mut reported = pin!(self.ctx.wait_condition_with_options(reported, detached_wait()));
            let result = select! {
                result = cancel => Some(result),
                _ = reported => None,
            };
            match result {
                Some(Ok(outcome)) => return outcome,
                Some(Err(_)) => self.pause_after_server_failure().await,
                None => {
                    cancel.cancel();
                    if self.take_success_or_failures() {
                        return CancelOutcome::SuccessReported;
                    }
                }
            }
        }
    }

    async fn debit(&self) -> DebitOutcome {
        let summary = format!("Debit {}", self.payment.money);
        let outcome = self.ledger_step(|| DebitActivities::debit, || self.id(), &summary).await;
        if outcome == DebitOutcome::NotConfirmed {
            self.is_unconfirmed.set(true);
        }
        outcome
    }

    async fn recall(&self) -> RecallOutcome {
        let summary = format!("Recall {} from switch {}", self.payment.money, self.payment.profile.switch);
        loop {
            let options = self.switch_options(WorkflowCancellationToken::new(), &summary);
            match self.ctx.execute_activity(SwitchActivities::recall, self.id(), options).await {
                Ok(outcome) => return outcome,
                Err(_) => self.pause_after_server_failure().await,
            }
        }
    }

    async fn release(&self, cause: &Cause) -> ReleaseOutcome {
        let input = || ReleaseInput { payment_id: self.id(), cause: cause.clone() };
        let summary = format!("Release {}", self.payment.money);
        self.ledger_step(|| LedgerActivities::release, input, &summary).await
    }

    async fn wait_within_sla(&self) -> WaitOutcome {
        if let Some(event) = self.take_event() {
            return event;
        }
        let mut sla = pin!(self.ctx.timer(self.sla_timer()));
        let mut next_event = pin!(self.next_event().fuse());
        let polling = WorkflowCancellationToken::new();
        let mut polled = pin!(self.poll_until_event(polling.clone(), None).fuse());
        let event = select! {
            event = next_event => event.unwrap_or(WaitOutcome::SlaExpired),
            event = polled => event,
            _ = sla => WaitOutcome::SlaExpired,
        };
        // After a SUCCESS the workflow completes, which ends its timers: a cancellation would cost an event.
        if !matches!(event, WaitOutcome::SlaExpired | WaitOutcome::SuccessReported) {
            sla.cancel();
        }
        polling.cancel();
        event
    }

    async fn wait_until_event(&self) -> WaitOutcome {
        loop {
            let reason = self.ctx.state(|workflow| workflow.operator_reason);
            let polling = WorkflowCancellationToken::new();
            let mut next_event = pin!(self.next_event().fuse());
            let mut polled = pin!(self.poll_until_event(polling.clone(), reason).fuse());
            let mut call_due = pin!(self.ctx.timer(self.operator_call_timer()));
            let event = select! {
                event = next_event => event,
                event = polled => Some(event),
                _ = call_due => Some(WaitOutcome::OperatorCallDue),
            };
            if event != Some(WaitOutcome::OperatorCallDue) {
                call_due.cancel();
            }
            polling.cancel();
            if let Some(event) = event {
                return event;
            }
        }
    }

    async fn needs_operator(&self, reason: OperatorReason) -> NeedsOperatorOutcome {
        let input = || NeedsOperatorInput { payment_id: self.id(), reason };
        let summary = format!("Request an operator: {reason}");
        self.operator_calls.set(self.operator_calls.get().saturating_add(1));
        let outcome = self.ledger_step(|| LedgerActivities::needs_operator, input, &summary).await;
        if !matches!(outcome, NeedsOperatorOutcome::Ended(_)) {
            self.ctx.state_mut(|workflow| workflow.operator_reason = Some(reason));
        }
        outcome
    }

    async fn apply_decision(
        &self,
        decision: &Decision,
        reason: OperatorReason,
        submit: SubmitProgress,
    ) -> DecisionOutcome {
        let summary = format!("Apply the operator decision: {} ({})", decision.action, decision.decision_id);
        loop {
            let input = ApplyDecisionInput {
                payment_id: self.id(),
                decision: decision.clone(),
                reason,
                submit_accepted: submit == SubmitProgress::Accepted,
            };
            let options = self.switch_options(WorkflowCancellationToken::new(), &summary);
            match self.ctx.execute_activity(SwitchActivities::apply_decision, input, options).await {
                Ok(outcome) => {
                    let id = decision.decision_id.clone();
                    self.ctx.state_mut(|workflow| workflow.record_decision_outcome(id, outcome.clone()));
                    return outcome;
                }
                Err(_) => self.pause_after_server_failure().await,
            }
        }
    }

    async fn alert(&self, alert: OperatorAlert) {
        let (kind, detail) = match alert {
            OperatorAlert::CompensationFailed { detail } => (AlertKind::CompensationFailed, detail),
            OperatorAlert::DebitFailed { detail } => (AlertKind::DebitFailed, detail),
        };
        let input = || AlertInput { payment_id: self.id(), kind, detail: detail.clone() };
        self.ledger_step(|| LedgerActivities::alert, input, "Raise an alert").await;
    }

    fn report_status(&self, state: PaymentState, detail: &str) {
        let at = self.ctx.workflow_time();
        self.ctx.state_mut(|workflow| workflow.record_state(state, detail, at));
        self.ctx.set_current_details(format!("**{state}**: {detail}"));
    }

    fn patched(&self, change: &str) -> bool {
        self.ctx.patched(change)
    }
}
