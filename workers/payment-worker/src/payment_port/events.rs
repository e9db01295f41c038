//! Events of a payment: signals in the inbox, the workflow's cancellation, the SLA, and polling.

use std::time::{Duration, SystemTime};

use payment_protocol::cause::OperatorReason;
use payment_protocol::port::WaitOutcome;
use temporalio_sdk::{TimerOptions, WaitConditionOptions, WorkflowCancellationToken};

use super::TemporalPaymentPort;
use crate::activities::switch::{PollInput, SwitchActivities};
use crate::workflow::InterBankPaymentWorkflow;

/// Time after which an operator is called for the second time. The call is repeated because the database may lose its commit: the
/// workflow would wait, and nobody would know.
const OPERATOR_CALL_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Longest time between two calls of an operator.
const OPERATOR_CALL_INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl TemporalPaymentPort<'_> {
    /// Takes the oldest event from the inbox; `None` if the inbox is empty.
    pub(super) fn take_event(&self) -> Option<WaitOutcome> {
        self.ctx.state_mut(|workflow| workflow.inbox.pop_front())
    }

    /// Takes each SUCCESS from the inbox; each FAILURE if there is no SUCCESS. Returns whether there was one.
    pub(super) fn take_success_or_failures(&self) -> bool {
        self.ctx.state_mut(|workflow| {
            let has_success = workflow.inbox.contains(&WaitOutcome::SuccessReported);
            workflow.inbox.retain(|event| match event {
                WaitOutcome::SuccessReported => false,
                WaitOutcome::FailureReported { .. } => has_success,
                _ => true,
            });
            has_success
        })
    }

    /// Waits for an event in the inbox or for the workflow's cancellation, and takes it.
    pub(super) async fn next_event(&self) -> Option<WaitOutcome> {
        let options = wait_options(self.unconsumed_cancellation());
        match self.ctx.wait_condition_with_options(|workflow| !workflow.inbox.is_empty(), options).await {
            Ok(()) => self.take_event(),
            Err(_) => {
                self.cancellation_consumed.set(true);
                Some(WaitOutcome::CustomerCancel)
            }
        }
    }

    /// Waits for the customer's cancel request or the workflow's cancellation, and takes it.
    pub(super) async fn next_cancel_request(&self) {
        let requested =
            |workflow: &InterBankPaymentWorkflow| workflow.inbox.contains(&WaitOutcome::CustomerCancel);
        let options = wait_options(self.unconsumed_cancellation());
        if self.ctx.wait_condition_with_options(requested, options).await.is_err() {
            self.cancellation_consumed.set(true);
        }
        self.ctx.state_mut(|workflow| workflow.inbox.retain(|event| *event != WaitOutcome::CustomerCancel));
    }

    /// The workflow's cancellation token until its cancellation was consumed; then a token that is never
    /// cancelled.
    fn unconsumed_cancellation(&self) -> WorkflowCancellationToken {
        if self.cancellation_consumed.get() {
            WorkflowCancellationToken::new()
        } else {
            self.ctx.cancellation_token()
        }
    }

    /// Polls a switch that does not call back, or whose callbacks a query must confirm, until the poll returns an event: there, after a
    /// callback that was not confirmed at once, and always while the payment awaits an operator. Never returns if a callback is enough, or
    /// if no answer of the switch can move the payment (`reason`).
    /// The server repeats the poll, so that polling adds no events to the history.
    pub(super) async fn poll_until_event(
        &self,
        token: WorkflowCancellationToken,
        reason: Option<OperatorReason>,
    ) -> WaitOutcome {
        let profile = &self.payment.profile;
        let awaits_answer = reason.is_some() || self.is_unconfirmed.get();
        let must_confirm = profile.confirms_by_query(self.payment.money) && awaits_answer;
        let is_moved = reason.is_none_or(OperatorReason::follows_return);
        if !(is_moved && (profile.must_be_polled() || must_confirm)) {
            return std::future::pending().await;
        }
        let summary = format!("Poll switch {}", self.payment.profile.switch);
        loop {
            let input = PollInput { payment_id: self.id(), reason };
            let options = self.switch_options(token.clone(), &summary);
            match self.ctx.execute_activity(SwitchActivities::poll, input, options).await {
                Ok(event) => return event,
                Err(_) if token.is_cancelled() => return std::future::pending().await,
                Err(_) => self.pause_after_server_failure().await,
            }
        }
    }

    /// The timer of the remaining SLA.
    pub(super) fn sla_timer(&self) -> TimerOptions {
        TimerOptions::builder(self.remaining_sla())
            .cancellation_token(WorkflowCancellationToken::new())
            .summary("SLA timer".to_owned())
            .build()
    }

    /// The timer after which an operator is called again: an hour after the first call, twice as long after each further one, a day
    /// at most.
    pub(super) fn operator_call_timer(&self) -> TimerOptions {
        let doublings = self.operator_calls.get().saturating_sub(1).min(5);
        let interval = OPERATOR_CALL_INTERVAL.saturating_mul(1 << doublings).min(OPERATOR_CALL_INTERVAL_MAX);
        TimerOptions::builder(interval)
            .cancellation_token(WorkflowCancellationToken::new())
            .summary("Call an operator again".to_owned())
            .build()
    }

    /// The remaining SLA, which counts from the first wait.
    fn remaining_sla(&self) -> Duration {
        let now = self.ctx.workflow_time().unwrap_or(SystemTime::UNIX_EPOCH);
        let sla = Duration::from_millis(self.payment.profile.sla_ms);
        let deadline = self.sla_deadline.get().unwrap_or_else(|| now.checked_add(sla).unwrap_or(now));
        self.sla_deadline.set(Some(deadline));
        deadline.duration_since(now).unwrap_or(Duration::ZERO)
    }
}

/// A wait that the cancellation of `token` ends early.
fn wait_options(token: WorkflowCancellationToken) -> WaitConditionOptions {
    WaitConditionOptions::builder().cancellation_token(token).build()
}

/// A wait that no cancellation ends.
pub(crate) fn detached_wait() -> WaitConditionOptions {
    wait_options(WorkflowCancellationToken::new())
}
