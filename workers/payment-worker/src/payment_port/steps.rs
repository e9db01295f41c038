//! Options, retries and summaries of the activities that are steps of a payment.

use std::time::Duration;

use temporalio_common::data_converters::TemporalDeserializable;
use temporalio_common::{ActivityDefinition, RetryPolicy};
use temporalio_sdk::{
    ActivityCloseTimeouts, ActivityOptions, LocalActivityOptions, TimerOptions, WorkflowCancellationToken,
};

use super::TemporalPaymentPort;
use crate::activities::{cancel_queue, submit_queue};

/// How long a ledger step is retried as a local activity before it becomes an ordinary one.
const LOCAL_ACTIVITY_BUDGET: Duration = Duration::from_secs(3);
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
            .retry_policy(retry_policy(LEDGER_RETRY_INTERVAL, LOCAL_ACTIVITY_BUDGET))
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

    /// Options of submit, which is retried within the profile's budget.
    pub(super) fn submit_options(&self) -> ActivityOptions {
        let profile = &self.payment.profile;
        ActivityOptions::with_close_timeouts(ActivityCloseTimeouts::ScheduleAndStartToClose {
            start_to_close: Duration::from_millis(profile.attempt_bound_ms()),
            schedule_to_close: Duration::from_millis(profile.submit_budget_ms),
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
        ActivityOptions::with_start_to_close_timeout(Duration::from_millis(profile.attempt_bound_ms()))
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
        let timer = TimerOptions::builder(SERVER_FAILURE_PAUSE)
            .cancellation_token(WorkflowCancellationToken::new())
            .summary("Pause before the next attempt".to_owned());
        self.ctx.timer(timer.build()).await;
    }
}

fn retry_policy(first: Duration, longest: Duration) -> RetryPolicy {
    RetryPolicy::builder().initial_interval(first.min(longest)).maximum_interval(longest).build()
}
