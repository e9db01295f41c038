//! The protocol's world, made of activities, signals and timers.
//!
//! Everything runs under a detached token: a cancellation of the workflow is heard as an event, like
//! a customer's cancel, and never tears a step apart.

use std::cell::Cell;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use payment_ledger::operator::alerts::AlertKind;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::payment::InvalidPayment;
use payment_protocol::port::{
    AccountLockOutcome, CancelOutcome, DebitOutcome, FenceOutcome, NeedsOperatorOutcome, OperatorAlert,
    PaymentPort, RecallOutcome, ReconcileOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome, WaitOutcome,
};
use payment_protocol::state::FinalState;
use payment_protocol::{Payment, PaymentState};
use temporalio_common::data_converters::TemporalDeserializable;
use temporalio_common::{ActivityDefinition, RetryPolicy};
use temporalio_sdk::workflows::select;
use temporalio_sdk::{
    ActivityCloseTimeouts, ActivityExecutionError, ActivityOptions, CancellableFuture as _,
    LocalActivityOptions, TimerOptions, WaitConditionOptions, WorkflowCancellationToken, WorkflowContext,
};

use crate::activities::ledger::{
    AlertInput, CloseDecisionInput, LedgerActivities, OperatorInput, ReleaseInput,
};
use crate::activities::lock::{LockActivities, LockInput};
use crate::activities::switch::{ApplyDecisionInput, CancelInput, PollInput, SwitchActivities};
use crate::activities::{cancel_queue, submit_queue};
use crate::workflow::InterBankPaymentWorkflow;

/// A ledger step is tried on the spot for so long, before it becomes an ordinary activity.
const LOCAL_FOR: Duration = Duration::from_secs(3);
/// Bound of one attempt of a ledger step.
const LEDGER_ATTEMPT: Duration = Duration::from_secs(10);
/// First pause between attempts of a ledger step.
const LEDGER_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between attempts of a ledger step.
const LEDGER_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Longest pause between attempts of submit: the budget is short, and a lost answer is found early.
const SUBMIT_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Pause after a step that the server itself gave up, which it does for no reason of ours.
const GIVEN_UP_PAUSE: Duration = Duration::from_secs(30);

/// The world of one payment's workflow.
pub(crate) struct TemporalPaymentPort<'a> {
    ctx: WorkflowContext<InterBankPaymentWorkflow>,
    payment: &'a Payment,
    sla_ends: Cell<Option<SystemTime>>,
    cancellation_heard: Cell<bool>,
    /// The destination account was asked for.
    lock_asked: Cell<bool>,
}

impl<'a> TemporalPaymentPort<'a> {
    pub(crate) fn new(ctx: WorkflowContext<InterBankPaymentWorkflow>, payment: &'a Payment) -> Self {
        Self {
            ctx,
            payment,
            sla_ends: Cell::new(None),
            cancellation_heard: Cell::new(false),
            lock_asked: Cell::new(false),
        }
    }

    /// A step of our own ledger: on the spot first, then by the server, until it has an outcome.
    async fn ledger_step<A>(
        &self,
        step: impl Fn() -> A,
        input: impl Fn() -> A::Input,
        summary: &str,
    ) -> A::Output
    where
        A: ActivityDefinition,
        A::Output: TemporalDeserializable + 'static,
    {
        let on_the_spot = LocalActivityOptions::builder()
            .schedule_to_close_timeout(LOCAL_FOR)
            .retry_policy(retry(LEDGER_PAUSE, LOCAL_FOR))
            .cancellation_token(WorkflowCancellationToken::new())
            .summary(summary.to_owned())
            .build();
        if let Ok(output) = self.ctx.execute_local_activity(step(), input(), on_the_spot).await {
            return output;
        }
        loop {
            let by_the_server = ActivityOptions::with_start_to_close_timeout(LEDGER_ATTEMPT)
                .retry_policy(retry(LEDGER_PAUSE, LEDGER_PAUSE_MAX))
                .cancellation_token(WorkflowCancellationToken::new())
                .summary(summary.to_owned())
                .build();
            match self.ctx.execute_activity(step(), input(), by_the_server).await {
                Ok(output) => return output,
                Err(_) => self.pause(GIVEN_UP_PAUSE).await,
            }
        }
    }

    /// Options of a step at the switch that asks for ever.
    fn asking(&self, token: WorkflowCancellationToken, summary: &str) -> ActivityOptions {
        let profile = &self.payment.profile;
        ActivityOptions::with_start_to_close_timeout(Duration::from_millis(profile.attempt_bound_ms()))
            .task_queue(cancel_queue(self.ctx.task_queue(), profile.switch.as_str()))
            .retry_policy(retry(
                Duration::from_millis(profile.backoff_ms),
                Duration::from_millis(profile.retry_interval_max_ms),
            ))
            .cancellation_token(token)
            .summary(summary.to_owned())
            .build()
    }

    async fn pause(&self, pause: Duration) {
        let detached = TimerOptions::builder(pause).cancellation_token(WorkflowCancellationToken::new());
        self.ctx.timer(detached.build()).await;
    }

    /// The next event in the inbox, if there is one.
    fn take_event(&self) -> Option<WaitOutcome> {
        self.ctx.state_mut(|workflow| workflow.inbox.pop_front())
    }

    /// The workflow's cancellation until it is heard, which happens once; nothing after that.
    fn first_cancellation(&self) -> WorkflowCancellationToken {
        if self.cancellation_heard.get() {
            WorkflowCancellationToken::new()
        } else {
            self.ctx.cancellation_token()
        }
    }

    /// Waits until the inbox holds something, or the workflow is asked to cancel for the first time.
    async fn heard(&self) -> Option<WaitOutcome> {
        let options = until(self.first_cancellation());
        match self.ctx.wait_condition_with_options(|workflow| !workflow.inbox.is_empty(), options).await {
            Ok(()) => self.take_event(),
            Err(_) => {
                self.cancellation_heard.set(true);
                Some(WaitOutcome::CustomerCancel)
            }
        }
    }

    /// Waits until the customer, or whoever cancels the workflow, asks to cancel.
    async fn cancel_heard(&self) {
        let asked =
            |workflow: &InterBankPaymentWorkflow| workflow.inbox.contains(&WaitOutcome::CustomerCancel);
        let options = until(self.first_cancellation());
        if self.ctx.wait_condition_with_options(asked, options).await.is_err() {
            self.cancellation_heard.set(true);
        }
        self.ctx.state_mut(|workflow| workflow.inbox.retain(|event| *event != WaitOutcome::CustomerCancel));
    }

    /// Looks at a switch that does not call back until there is news; for ever at one that does. The
    /// repetition is the server's and writes no history.
    async fn news(&self, token: WorkflowCancellationToken, standing: Option<OperatorReason>) -> WaitOutcome {
        // Where nothing the switch says can move the payment it is not asked.
        let follows_switch = standing.is_none_or(OperatorReason::follows_switch);
        if !(self.payment.profile.must_be_polled() && follows_switch) {
            return std::future::pending().await;
        }
        loop {
            let input = PollInput { payment: self.payment.clone(), standing: standing.is_some() };
            let options = self.asking(token.clone(), "look at the switch");
            match self.ctx.execute_activity(SwitchActivities::poll, input, options).await {
                Ok(event) => return event,
                Err(_) if token.is_cancelled() => return std::future::pending().await,
                Err(_) => self.pause(GIVEN_UP_PAUSE).await,
            }
        }
    }

    /// Before the workflow completes: whoever waits for what came of a decision is answered, and the
    /// decision is closed.
    pub(crate) async fn answer_decisions(&self, end: FinalState) {
        loop {
            self.ctx.state_mut(|workflow| workflow.standing = None);
            if let Some(decision_id) = self.ctx.state(InterBankPaymentWorkflow::deciding) {
                let came = DecisionOutcome::Ended(end);
                let input = || CloseDecisionInput {
                    decision_id: decision_id.clone(),
                    came: came.clone(),
                    detail: format!("the payment had ended: {end}"),
                };
                let step = || LedgerActivities::close_decision;
                self.ledger_step(step, input, "close a decision").await;
                self.ctx.state_mut(|workflow| workflow.answer(decision_id.clone(), came.clone()));
            }
            let answered = self.ctx.clone();
            let detached = until(WorkflowCancellationToken::new());
            let finished = |workflow: &InterBankPaymentWorkflow| {
                workflow.deciding().is_some() || answered.all_handlers_finished()
            };
            let _ = self.ctx.wait_condition_with_options(finished, detached).await;
            if self.ctx.state(InterBankPaymentWorkflow::deciding).is_none() {
                return;
            }
        }
    }

    fn lock_input(&self) -> LockInput {
        LockInput { payment: self.payment.clone(), workflow_id: self.ctx.workflow_id().to_owned() }
    }

    async fn give_lock_back(&self) {
        let step = || LockActivities::release_lock;
        self.ledger_step(step, || self.lock_input(), "give the account back").await;
    }

    /// What is left of the SLA, which counts from the first wait.
    fn sla_left(&self) -> Duration {
        let now = self.ctx.workflow_time().unwrap_or(SystemTime::UNIX_EPOCH);
        let sla = Duration::from_millis(self.payment.profile.sla_ms);
        let ends = self.sla_ends.get().unwrap_or_else(|| now.checked_add(sla).unwrap_or(now));
        self.sla_ends.set(Some(ends));
        ends.duration_since(now).unwrap_or(Duration::ZERO)
    }
}

impl PaymentPort for TemporalPaymentPort<'_> {
    async fn reject(&self, _invalid: &InvalidPayment) {
        let id = || self.payment.payment_id.clone();
        self.ledger_step(|| LedgerActivities::reject, id, "reject: not valid").await;
    }

    async fn reserve(&self) -> ReserveOutcome {
        let id = || self.payment.payment_id.clone();
        self.ledger_step(|| LedgerActivities::reserve, id, "hold the amount").await
    }

    async fn fence_reserve(&self) -> FenceOutcome {
        let id = || self.payment.payment_id.clone();
        self.ledger_step(|| LedgerActivities::fence_reserve, id, "fence a late reserve").await
    }

    async fn submit(&self) -> SubmitOutcome {
        let profile = &self.payment.profile;
        let backoff = Duration::from_millis(profile.backoff_ms);
        let options = ActivityOptions::with_close_timeouts(ActivityCloseTimeouts::ScheduleAndStartToClose {
            start_to_close: Duration::from_millis(profile.attempt_bound_ms()),
            schedule_to_close: Duration::from_millis(profile.submit_budget_ms),
        })
        .task_queue(submit_queue(self.ctx.task_queue(), profile.switch.as_str()))
        .retry_policy(retry(backoff, SUBMIT_PAUSE_MAX))
        .cancellation_token(WorkflowCancellationToken::new())
        .summary(format!("send {} by {}", self.payment.money, profile.switch))
        .build();
        let submitted: Result<_, ActivityExecutionError> =
            self.ctx.execute_activity(SwitchActivities::submit, self.payment.clone(), options).await;
        // Whatever ended it without an answer, the switch may have the transfer.
        submitted.unwrap_or(SubmitOutcome::Unknown)
    }

    async fn reconcile_submission(&self) -> ReconcileOutcome {
        let id = || self.payment.payment_id.clone();
        self.ledger_step(|| LedgerActivities::reconcile_submission, id, "look what came in").await
    }

    async fn lock_account(&self) -> AccountLockOutcome {
        self.lock_asked.set(true);
        let step = || LockActivities::get_lock;
        self.ledger_step(step, || self.lock_input(), "ask for the account").await;
        let wait = Duration::from_millis(self.payment.profile.sla_ms);
        let timer = TimerOptions::builder(wait)
            .cancellation_token(WorkflowCancellationToken::new())
            .summary("wait for the account".to_owned())
            .build();
        let mut timer = pin!(self.ctx.timer(timer));
        let detached = until(WorkflowCancellationToken::new());
        let has_lock = |workflow: &InterBankPaymentWorkflow| workflow.has_lock;
        let mut passed = pin!(self.ctx.wait_condition_with_options(has_lock, detached));
        let mut cancel = pin!(futures::FutureExt::fuse(self.cancel_heard()));
        let came = select! {
            _ = passed => AccountLockOutcome::Held,
            _ = cancel => AccountLockOutcome::CustomerCancel,
            _ = timer => AccountLockOutcome::NotGranted,
        };
        if came != AccountLockOutcome::NotGranted {
            timer.cancel();
        }
        if came != AccountLockOutcome::Held {
            self.give_lock_back().await;
        }
        came
    }

    async fn unlock_account(&self) {
        // A run that takes the payment up again gives back what the run before it had.
        if self.lock_asked.get() || self.payment.resume > 0 {
            self.give_lock_back().await;
        }
    }

    async fn cancel(&self, cause: &Cause) -> CancelOutcome {
        loop {
            let input = CancelInput { payment: self.payment.clone(), cause: cause.clone() };
            let options = self.asking(WorkflowCancellationToken::new(), "ask the switch to cancel");
            let mut asking = pin!(self.ctx.execute_activity(SwitchActivities::cancel, input, options));
            let success =
                |workflow: &InterBankPaymentWorkflow| workflow.inbox.contains(&WaitOutcome::SuccessReported);
            let detached = until(WorkflowCancellationToken::new());
            let mut reported = pin!(self.ctx.wait_condition_with_options(success, detached));
            let answer = select! {
                answer = asking => Some(answer),
                _ = reported => None,
            };
            match answer {
                Some(Ok(asked)) => return asked,
                // The server gave up, which it does for no reason of ours: ask again.
                Some(Err(_)) => self.pause(GIVEN_UP_PAUSE).await,
                None => {
                    self.ctx.state_mut(|workflow| {
                        workflow.inbox.retain(|event| *event != WaitOutcome::SuccessReported)
                    });
                    asking.cancel();
                    return CancelOutcome::SuccessReported;
                }
            }
        }
    }

    async fn debit(&self) -> DebitOutcome {
        let id = || self.payment.payment_id.clone();
        self.ledger_step(|| LedgerActivities::debit, id, "debit what is held").await
    }

    async fn recall(&self) -> RecallOutcome {
        loop {
            let options = self.asking(WorkflowCancellationToken::new(), "ask for the money back");
            match self.ctx.execute_activity(SwitchActivities::recall, self.payment.clone(), options).await {
                Ok(recalled) => return recalled,
                Err(_) => self.pause(GIVEN_UP_PAUSE).await,
            }
        }
    }

    async fn release(&self, cause: &Cause) -> ReleaseOutcome {
        let input = || ReleaseInput { payment_id: self.payment.payment_id.clone(), cause: cause.clone() };
        self.ledger_step(|| LedgerActivities::release, input, "give back what is held").await
    }

    async fn wait_within_sla(&self) -> WaitOutcome {
        if let Some(event) = self.take_event() {
            return event;
        }
        let timer = TimerOptions::builder(self.sla_left())
            .cancellation_token(WorkflowCancellationToken::new())
            .summary("SLA".to_owned())
            .build();
        let mut sla = pin!(self.ctx.timer(timer));
        let mut heard = pin!(futures::FutureExt::fuse(self.heard()));
        let looking = WorkflowCancellationToken::new();
        let mut news = pin!(futures::FutureExt::fuse(self.news(looking.clone(), None)));
        let event = select! {
            event = heard => event.unwrap_or(WaitOutcome::SlaExpired),
            event = news => event,
            _ = sla => WaitOutcome::SlaExpired,
        };
        if event != WaitOutcome::SlaExpired {
            sla.cancel();
        }
        looking.cancel();
        event
    }

    async fn wait_until_event(&self) -> WaitOutcome {
        loop {
            let standing = self.ctx.state(|workflow| workflow.standing);
            let looking = WorkflowCancellationToken::new();
            let mut heard = pin!(futures::FutureExt::fuse(self.heard()));
            let mut news = pin!(futures::FutureExt::fuse(self.news(looking.clone(), standing)));
            let event = select! {
                event = heard => event,
                event = news => Some(event),
            };
            looking.cancel();
            if let Some(event) = event {
                return event;
            }
        }
    }

    async fn needs_operator(&self, reason: OperatorReason) -> NeedsOperatorOutcome {
        let input = || OperatorInput { payment_id: self.payment.payment_id.clone(), reason };
        let step = || LedgerActivities::needs_operator;
        let standing = self.ledger_step(step, input, "stand before a person").await;
        if !matches!(standing, NeedsOperatorOutcome::Ended(_)) {
            self.ctx.state_mut(|workflow| workflow.standing = Some(reason));
        }
        standing
    }

    async fn apply_decision(&self, decision: &Decision, reason: OperatorReason) -> DecisionOutcome {
        loop {
            let input =
                ApplyDecisionInput { payment: self.payment.clone(), decision: decision.clone(), reason };
            let summary = format!("carry out {} ({})", decision.action, decision.decision_id);
            let options = self.asking(WorkflowCancellationToken::new(), &summary);
            match self.ctx.execute_activity(SwitchActivities::apply_decision, input, options).await {
                Ok(came) => {
                    let id = decision.decision_id.clone();
                    self.ctx.state_mut(|workflow| workflow.answer(id, came.clone()));
                    return came;
                }
                Err(_) => self.pause(GIVEN_UP_PAUSE).await,
            }
        }
    }

    async fn alert(&self, alert: OperatorAlert) {
        let input = || match &alert {
            OperatorAlert::CompensationFailed { detail } => AlertInput {
                payment_id: self.payment.payment_id.clone(),
                kind: AlertKind::CompensationFailed,
                detail: detail.clone(),
            },
        };
        self.ledger_step(|| LedgerActivities::alert, input, "alert").await;
    }

    fn report_status(&self, state: PaymentState, detail: &str) {
        let at = self.ctx.workflow_time();
        self.ctx.state_mut(|workflow| workflow.show(state, detail, at));
        self.ctx.set_current_details(format!("**{state}** — {detail}"));
    }

    fn patched(&self, change: &str) -> bool {
        self.ctx.patched(change)
    }
}

/// A wait that ends early when the token is cancelled; detached from the workflow's own cancellation.
fn until(token: WorkflowCancellationToken) -> WaitConditionOptions {
    WaitConditionOptions::builder().cancellation_token(token).build()
}

fn retry(first: Duration, longest: Duration) -> RetryPolicy {
    RetryPolicy::builder().initial_interval(first.min(longest)).maximum_interval(longest).build()
}
