//! Options, retries and summaries of the activities that are steps of a payment.

use std::time::Duration;

use payment_protocol::Payment;
use payment_protocol::port::SubmitOutcome;
use temporalio_common::data_converters::TemporalDeserializable;
use temporalio_common::{ActivityDefinition, RetryPolicy};
use temporalio_sdk::{
    ActivityCloseTimeouts, ActivityExecutionError, ActivityOptions, LocalActivityOptions, TimerOptions,
    WorkflowCancellationToken,
};

use super::TemporalPaymentPort;
use crate::activities::first_steps::{FirstSteps, FirstStepsActivities};
use crate::activities::switch::SwitchActivities;
use crate::activities::{cancel_queue, submit_queue};

/// How long a ledger step is retried as a local activity before it becomes an ordinary one.
const LOCAL_ACTIVITY_BUDGET: Duration = Duration::from_secs(3);
/// Attempts of a ledger step within that time: the pauses between them take half of it. Without this bound a step that fails at once would be
/// retried for ever, each time with a heartbeat in the history: `temporalio-sdk-core` 0.10.1 forgets a schedule-to-close timeout that passes between two
/// attempts of a local activity (`LocalActivityManager::next_pending`).
const LOCAL_ATTEMPTS_MAX: u32 = 5;
/// Longest attempt of a ledger step.
const LEDGER_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// First retry interval of a ledger step.
const LEDGER_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Longest retry interval of a ledger step.
const LEDGER_RETRY_INTERVAL_MAX: Duration = Duration::from_secs(10);
/// Longest retry interval of submit: the budget is short, and a lost answer is found early.
const SUBMIT_RETRY_INTERVAL_MAX: Duration = Duration::from_secs(2);
/// Pause after the Temporal server failed an activity that has no limit of attempts or time.
const SERVER_FAILURE_PAUSE: Duration = Duration::from_secs(30);

impl TemporalPaymentPort<'_> {
    /// Runs a step of our own ledger until it has an outcome: first as a local activity, then as an ordinary
    /// activity that the server retries without end.
    pub(super) async fn ledger_step<A>(
        &self,
        step: impl Fn() -> A,
        input: impl Fn() -> A::Input,
        summary: &str,
    ) -> A::Output
    where
        A: ActivityDefinition,
        A::Output: TemporalDeserializable + 'static,
    {
        let local = LocalActivityOptions::builder()
            .schedule_to_close_timeout(LOCAL_ACTIVITY_BUDGET)
            .start_to_close_timeout(LOCAL_ACTIVITY_BUDGET)
            .retry_policy(
                RetryPolicy::builder()
                    .initial_interval(LEDGER_RETRY_INTERVAL)
                    .maximum_attempts(LOCAL_ATTEMPTS_MAX)
                    .build(),
            )
            .cancellation_token(WorkflowCancellationToken::new())
            .summary(summary.to_owned())
            .build();
        if let Ok(output) = self.ctx.execute_local_activity(step(), input(), local).await {
            return output;
        }
        loop {
            let ordinary = ActivityOptions::with_start_to_close_timeout(LEDGER_ATTEMPT_TIMEOUT)
                .retry_policy(retry_policy(LEDGER_RETRY_INTERVAL, LEDGER_RETRY_INTERVAL_MAX))
                .cancellation_token(WorkflowCancellationToken::new())
                .summary(summary.to_owned())
                .build();
            match self.ctx.execute_activity(step(), input(), ordinary).await {
                Ok(output) => return output,
                Err(_) => self.pause_after_server_failure().await,
            }
        }
    }

    /// Runs reserve and, if the switch is quick, submit within the workflow task. `None` if it has no outcome, or if the switch
    /// allows no second attempt: this activity is made again if it is lost with its worker.
    pub(super) async fn first_steps(&self) -> Option<FirstSteps> {
        let Payment { profile, money, .. } = self.payment;
        if profile.forbids_second_attempt() {
            return None;
        }
        let bound = Duration::from_millis(profile.attempt_bound_ms()).saturating_add(LOCAL_ACTIVITY_BUDGET);
        let options = LocalActivityOptions::builder()
            .schedule_to_close_timeout(bound)
            .retry_policy(RetryPolicy::builder().maximum_attempts(1).build())
            .cancellation_token(WorkflowCancellationToken::new())
            .summary(format!("Reserve {money} and submit it to switch {}", profile.switch))
            .build();
        let step = FirstStepsActivities::reserve_and_submit;
        self.ctx.execute_local_activity(step, self.payment.clone(), options).await.ok()
    }

    /// Runs submit as an ordinary activity, which is retried within the profile's budget. `spent`: the part of the budget that an
    /// earlier attempt used.
    pub(super) async fn submit_within_budget(&self, spent: Duration) -> SubmitOutcome {
        let budget = Duration::from_millis(self.payment.profile.submit_budget_ms);
        let Some(left) = budget.checked_sub(spent).filter(|left| !left.is_zero()) else {
            return SubmitOutcome::Unknown;
        };
        let submitted: Result<_, ActivityExecutionError> =
            self.ctx.execute_activity(SwitchActivities::submit, self.id(), self.submit_options(left)).await;
        // Without an outcome within the budget the switch may still have received the transfer.
        submitted.unwrap_or(SubmitOutcome::Unknown)
    }

    /// Pauses before the second submit attempt, after one within the workflow task: for the backoff, or as long as the switch requires.
    /// Returns how long.
    pub(super) async fn pause_before_second_submit(&self, retry_after: Duration) -> Duration {
        let backoff = Duration::from_millis(self.payment.profile.backoff_ms).min(SUBMIT_RETRY_INTERVAL_MAX);
        let pause = backoff.max(retry_after);
        self.pause(pause).await;
        pause
    }

    fn submit_options(&self, budget: Duration) -> ActivityOptions {
        let profile = &self.payment.profile;
        ActivityOptions::with_close_timeouts(ActivityCloseTimeouts::ScheduleAndStartToClose {
            start_to_close: Duration::from_millis(profile.attempt_bound_ms()),
            schedule_to_close: budget,
        })
        .task_queue(submit_queue(self.ctx.task_queue(), profile.switch.as_str()))
        .retry_policy(retry_policy(Duration::from_millis(profile.backoff_ms), SUBMIT_RETRY_INTERVAL_MAX))
        .cancellation_token(WorkflowCancellationToken::new())
        .summary(format!("Submit {} to switch {}", self.payment.money, profile.switch))
        .build()
    }

    /// Options of the other activities at the switch, which the server retries without end.
    pub(super) fn switch_options(&self, token: WorkflowCancellationToken, summary: &str) -> ActivityOptions {
        let profile = &self.payment.profile;
        ActivityOptions::with_start_to_close_timeout(Duration::from_millis(profile.look_bound_ms()))
            .task_queue(cancel_queue(self.ctx.task_queue(), profile.switch.as_str()))
            .retry_policy(retry_policy(
                Duration::from_millis(profile.backoff_ms),
                Duration::from_millis(profile.retry_interval_max_ms),
            ))
            .cancellation_token(token)
            .summary(summary.to_owned())
            .build()
    }

    /// The pause before an activity is scheduled again that the server failed although it has no limit.
    pub(super) async fn pause_after_server_failure(&self) {
        self.pause(SERVER_FAILURE_PAUSE).await;
    }

    async fn pause(&self, duration: Duration) {
        let timer = TimerOptions::builder(duration)
            .cancellation_token(WorkflowCancellationToken::new())
            .summary("Pause before the next attempt".to_owned());
        self.ctx.timer(timer.build()).await;
    }
}

fn retry_policy(first: Duration, longest: Duration) -> RetryPolicy {
    RetryPolicy::builder().initial_interval(first.min(longest)).maximum_interval(longest).build()
}
