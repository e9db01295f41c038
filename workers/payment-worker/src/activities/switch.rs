//! Activities that are attempts of steps at a switch. The protocol implements each attempt
//! ([`payment_protocol::submit`], [`payment_protocol::poll`], [`payment_protocol::cancel`],
//! [`payment_protocol::recall`], [`payment_protocol::decision`]); the Temporal server repeats it.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use payment_ledger::{Ledger, LedgerError};
use payment_protocol::Payment;
use payment_protocol::alert::AlertKind;
use payment_protocol::cancel::{self, CancelAttemptOutcome};
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{self, Decision, DecisionOutcome};
use payment_protocol::ids::{PaymentId, RunId, SwitchName};
use payment_protocol::poll::{self, Awaited, PollOutcome};
use payment_protocol::port::{CancelOutcome, RecallOutcome, SubmitOutcome, SubmitProgress, WaitOutcome};
use payment_protocol::recall::{self, RecallAttemptOutcome};
use payment_protocol::submit::{self, SubmitAttemptOutcome};
use serde::{Deserialize, Serialize};
use service_kit::error_chain;
use switch_client::SwitchClient;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::ledger::run_id;
use super::local_submits::LocalSubmits;
use super::{ledger_failure, retryable};
use crate::adapters::{CancelAdapter, RecallAdapter, SubmitAdapter, SubmitAdapterError, SwitchSession};

/// Interval of the heartbeats of an attempt that waits for the switch. The server answers each with whether the attempt is
/// cancelled. An attempt that ends earlier sends none.
pub(crate) const SWITCH_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Input of cancel.
#[derive(Debug, Serialize, Deserialize)]
pub struct CancelInput {
    /// The payment.
    pub payment_id: PaymentId,
    /// Why the payment is compensated.
    pub cause: Cause,
    /// Whether the workflow scheduled a submit, or does not know.
    pub submit_scheduled: bool,
    /// Whether the switch accepted the transfer. Workflows of an older release do not say.
    #[serde(default)]
    pub submit_accepted: bool,
}

impl CancelInput {
    fn submit_progress(&self) -> SubmitProgress {
        match (self.submit_accepted, self.submit_scheduled) {
            (true, _) => SubmitProgress::Accepted,
            (false, true) => SubmitProgress::Scheduled,
            (false, false) => SubmitProgress::NotScheduled,
        }
    }
}

/// Input of poll.
#[derive(Debug, Serialize, Deserialize)]
pub struct PollInput {
    /// The payment.
    pub payment_id: PaymentId,
    /// Why the payment needs an operator; a poll then returns only answers that can move it. `None`: it awaits its confirmation.
    pub reason: Option<OperatorReason>,
}

/// Input of apply_decision.
#[derive(Debug, Serialize, Deserialize)]
pub struct ApplyDecisionInput {
    /// The payment.
    pub payment_id: PaymentId,
    /// The operator decision.
    pub decision: Decision,
    /// Why the payment needs an operator.
    pub reason: OperatorReason,
    /// Whether the switch accepted the transfer, as the workflow knows. Workflows of an older release do not say.
    #[serde(default)]
    pub submit_accepted: bool,
}

/// Dependencies of the switch activities, shared by all activities of this process.
pub struct SwitchActivities {
    /// The ledger.
    pub ledger: Ledger,
    /// A client for each configured switch.
    pub clients: Arc<BTreeMap<SwitchName, Arc<dyn SwitchClient>>>,
    /// Which switches are quick enough for a submit within a workflow task.
    pub local_submits: Arc<LocalSubmits>,
}

/// One submit attempt that was made.
pub(super) struct SubmitTry {
    pub(super) outcome: Result<SubmitOutcome, ActivityError>,
    /// Whether it is known that no try of this submit has sent the transfer so far.
    pub(super) sent_nothing: bool,
    /// How long the switch asked us to wait; `None` if it did not.
    pub(super) retry_after: Option<Duration>,
}

impl SwitchActivities {
    /// The payment, as our ledger has it.
    async fn payment(&self, payment_id: &PaymentId) -> Result<Payment, ActivityError> {
        self.ledger.accepted_payment(payment_id).await.map_err(ledger_failure)
    }

    /// The session of a payment at its switch. A switch that is not configured is one that gives no answer: a cancel still
    /// begins, and operators can decide after the switch's retention.
    pub(crate) fn session<'a>(&'a self, payment: &'a Payment) -> SwitchSession<'a> {
        let name = &payment.profile.switch;
        let client = self.clients.get(name).map(|client| &**client);
        if client.is_none() {
            tracing::error!(switch = %name, payment.id = %payment.payment_id, "the payment-worker sent nothing to a payment's switch because the switch is not configured; add the configuration section [switches.NAME]");
        }
        SwitchSession { ledger: &self.ledger, client, payment }
    }

    /// One submit attempt. An error says that its outcome is unknown, and when to repeat it.
    pub(super) async fn try_submit(&self, payment: &Payment, run: RunId, tried_before: bool) -> SubmitTry {
        let adapter = SubmitAdapter::new(self.session(payment), run, tried_before);
        let outcome = submit::attempt(&adapter, payment).await;
        self.submit_try(&adapter, outcome)
    }

    /// Reserves, calls `reserved`, and makes the first submit attempt, which the ledger records with the reserve. `None`: it made no
    /// attempt, and whether it reserved is unknown.
    pub(super) async fn try_first_submit(
        &self,
        payment: &Payment,
        run: RunId,
        reserved: impl FnOnce(),
    ) -> Option<SubmitTry> {
        let adapter = SubmitAdapter::new(self.session(payment), run, false);
        if !adapter.reserve_with_attempt().await {
            return None;
        }
        reserved();
        let outcome = submit::first_attempt(&adapter, payment).await;
        Some(self.submit_try(&adapter, outcome))
    }

    fn submit_try(
        &self,
        adapter: &SubmitAdapter<'_>,
        outcome: Result<SubmitAttemptOutcome, SubmitAdapterError>,
    ) -> SubmitTry {
        let session = adapter.session;
        let not_sent = |kind, error: &SubmitAdapterError| {
            Err(retryable(kind, &error.to_string(), session.retry_after()))
        };
        let outcome = match outcome {
            Ok(SubmitAttemptOutcome::Accepted) => Ok(SubmitOutcome::Accepted),
            Ok(SubmitAttemptOutcome::Refused { reason }) => Ok(SubmitOutcome::Refused { reason }),
            Ok(SubmitAttemptOutcome::Settled) => Ok(SubmitOutcome::Settled),
            Ok(SubmitAttemptOutcome::NotSent(reason)) => Ok(SubmitOutcome::NotSent(reason)),
            Ok(SubmitAttemptOutcome::Unknown { detail }) => {
                Err(retryable("submit_unknown", &detail, session.retry_after()))
            }
            Err(SubmitAdapterError::Ledger(error)) => Err(ledger_failure(error)),
            Err(error @ SubmitAdapterError::SwitchNotConfigured { .. }) => {
                not_sent("switch_not_configured", &error)
            }
            Err(error @ SubmitAdapterError::SubmitsHeldBack { .. }) => {
                not_sent("switch_submits_held_back", &error)
            }
            Err(error @ SubmitAdapterError::SwitchClock { .. }) => not_sent("switch_clock_unknown", &error),
            Err(error @ SubmitAdapterError::ListingUnavailable { .. }) => {
                not_sent("switch_listing_unavailable", &error)
            }
        };
        self.local_submits.record(&session.payment.profile.switch, outcome.is_ok(), adapter.slowest_answer());
        SubmitTry { outcome, sent_nothing: adapter.sent_nothing(), retry_after: session.retry_after() }
    }

    /// Closes a decision that the database refuses for good.
    async fn refuse_decision(
        &self,
        decision: &Decision,
        error: &LedgerError,
    ) -> Result<DecisionOutcome, ActivityError> {
        let detail = error_chain(error);
        let refused = DecisionOutcome::Refused { detail: detail.clone() };
        self.ledger.close_decision(&decision.decision_id, &refused, &detail).await.map_err(ledger_failure)?;
        Ok(refused)
    }

    /// As [`ledger_failure`]; operators are alerted if the database refuses the step for good.
    async fn ledger_failure(&self, payment: &Payment, kind: AlertKind, error: LedgerError) -> ActivityError {
        if error.is_final()
            && let Err(failure) = self.alert(payment, kind, &error_chain(&error)).await
        {
            return failure;
        }
        ledger_failure(error)
    }

    /// Alerts an operator that the switch has not decided, or that the database refuses its answer.
    async fn alert(&self, payment: &Payment, kind: AlertKind, detail: &str) -> Result<(), ActivityError> {
        metrics::counter!("payments_alerts_total", "kind" => kind.as_str()).increment(1);
        self.ledger.alert(&payment.payment_id, kind, detail).await.map_err(ledger_failure)
    }
}

/// Whether an earlier try of this submit may have sent the transfer. The tries are counted by Temporal, whose record survives a
/// commit that our database lost. Each heartbeat says up to which try nothing was sent.
fn may_have_sent_before(ctx: &ActivityContext) -> bool {
    let earlier = ctx.info().attempt.saturating_sub(1);
    let sent_nothing: u32 = ctx.heartbeat_details().deserialize().ok().flatten().unwrap_or(0);
    sent_nothing < earlier
}

/// Says that nothing was sent up to this try, for [`may_have_sent_before`]. Lost, it costs only that certainty.
async fn record_nothing_sent(ctx: &ActivityContext) {
    let _ = ctx.record_heartbeat(ctx.info().attempt).await;
}

/// Runs an attempt until it ends or is cancelled: by the workflow, which needs the answer no more, or by the shutdown of this
/// worker. An abandoned attempt has no outcome. Only for attempts that may be repeated: a poll changes nothing, and the key of a
/// cancel, a recall or a decision makes its repetition one with it. An abandoned submit would lose the answer to the only attempt.
async fn unless_cancelled<T>(
    ctx: &ActivityContext,
    attempt: impl Future<Output = T>,
) -> Result<T, ActivityError> {
    let mut attempt = pin!(attempt);
    let mut heartbeats = interval_at(Instant::now() + SWITCH_HEARTBEAT_INTERVAL, SWITCH_HEARTBEAT_INTERVAL);
    heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            ended = &mut attempt => return Ok(ended),
            () = ctx.cancelled() => return Err(ActivityError::cancelled()),
            // Lost, it only delays the cancellation.
            _ = heartbeats.tick() => {
                let _ = ctx.record_heartbeat(()).await;
            }
        }
    }
}

/// The delay before the next attempt: until the switch's deadline has passed on its clock, or as long as its
/// `Retry-After` requires, whichever is longer. The first is bounded by the profile's `retry_interval_max_ms`,
/// since the switch's clock may have been wrong.
fn retry_delay(session: SwitchSession<'_>, not_before_ms: Option<u64>) -> Option<Duration> {
    let bound_ms = session.payment.profile.retry_interval_max_ms;
    let until_deadline = not_before_ms.map(|delay_ms| Duration::from_millis(delay_ms.min(bound_ms)));
    until_deadline.max(session.retry_after())
}

#[activities]
impl SwitchActivities {
    /// Makes one submit attempt. An unknown outcome is an error, which the server retries within the budget.
    #[activity(name = "submit")]
    pub async fn submit(
        self: Arc<Self>,
        ctx: ActivityContext,
        payment_id: PaymentId,
    ) -> Result<SubmitOutcome, ActivityError> {
        let tried_before = may_have_sent_before(&ctx);
        let payment = match self.payment(&payment_id).await {
            Ok(payment) => payment,
            Err(error) => {
                if !tried_before {
                    record_nothing_sent(&ctx).await;
                }
                return Err(error);
            }
        };
        let tried = self.try_submit(&payment, run_id(&ctx)?, tried_before).await;
        if tried.sent_nothing {
            record_nothing_sent(&ctx).await;
        }
        tried.outcome
    }

    /// Makes one cancel attempt. An undecided answer is an error, which the server retries without end.
    #[activity(name = "cancel")]
    pub async fn cancel(
        self: Arc<Self>,
        ctx: ActivityContext,
        input: CancelInput,
    ) -> Result<CancelOutcome, ActivityError> {
        let payment = self.payment(&input.payment_id).await?;
        let session = self.session(&payment);
        let submit = input.submit_progress();
        let adapter = CancelAdapter::for_cancel(session, input.cause, submit);
        let attempted = unless_cancelled(&ctx, cancel::attempt(&adapter, &payment)).await?;
        let attempted = match attempted {
            Ok(attempted) => attempted,
            Err(error) => return Err(self.ledger_failure(&payment, AlertKind::CancelUndecided, error).await),
        };
        Ok(match attempted {
            CancelAttemptOutcome::Void => CancelOutcome::Void,
            CancelAttemptOutcome::Settled => CancelOutcome::Settled,
            CancelAttemptOutcome::Differs => CancelOutcome::Differs,
            CancelAttemptOutcome::Undecidable(reason) => CancelOutcome::Undecidable(reason),
            CancelAttemptOutcome::Ended(end) => CancelOutcome::Ended(end),
            CancelAttemptOutcome::Retry { not_before_ms, detail, alert } => {
                if alert {
                    self.alert(&payment, AlertKind::CancelUndecided, &detail).await?;
                }
                return Err(retryable("cancel_undecided", &detail, retry_delay(session, not_before_ms)));
            }
        })
    }

    /// Makes one recall attempt. An undecided answer is an error, which the server retries without end.
    #[activity(name = "recall")]
    pub async fn recall(
        self: Arc<Self>,
        ctx: ActivityContext,
        payment_id: PaymentId,
    ) -> Result<RecallOutcome, ActivityError> {
        let payment = self.payment(&payment_id).await?;
        let session = self.session(&payment);
        let adapter = RecallAdapter { session };
        let attempted = unless_cancelled(&ctx, recall::attempt(&adapter, &payment)).await?;
        let attempted = match attempted {
            Ok(attempted) => attempted,
            Err(error) => return Err(self.ledger_failure(&payment, AlertKind::RecallUndecided, error).await),
        };
        match attempted {
            RecallAttemptOutcome::Decided(recalled) => Ok(recalled),
            RecallAttemptOutcome::Retry { detail } => {
                self.alert(&payment, AlertKind::RecallUndecided, &detail).await?;
                Err(retryable("recall_undecided", &detail, retry_delay(session, None)))
            }
        }
    }

    /// Polls once a switch that does not call back, or whose callbacks a query must confirm. An answer that cannot move the payment is an
    /// error, which the server retries until the workflow's wait ends.
    #[activity(name = "poll")]
    pub async fn poll(
        self: Arc<Self>,
        ctx: ActivityContext,
        input: PollInput,
    ) -> Result<WaitOutcome, ActivityError> {
        let payment = self.payment(&input.payment_id).await?;
        let session = self.session(&payment);
        let adapter = CancelAdapter::for_poll(session);
        let polled = unless_cancelled(&ctx, poll::poll(&adapter, &payment)).await?;
        let polled = polled.map_err(ledger_failure)?;
        let awaited = input.reason.map_or(Awaited::Confirmation, Awaited::with_operator);
        if let Some(outcome) = polled.wait_outcome(awaited) {
            return Ok(outcome);
        }
        Err(match polled {
            PollOutcome::Retry { detail } => retryable("poll_undecided", &detail, retry_delay(session, None)),
            PollOutcome::FailureReported { reason } => retryable("poll_unchanged", &reason, None),
            PollOutcome::SuccessReported | PollOutcome::ReturnReported | PollOutcome::Differs => {
                retryable("poll_unchanged", "the report moves nothing, as recorded before", None)
            }
        })
    }

    /// Applies an operator decision and closes it in the ledger with its outcome; a repeat returns the recorded
    /// outcome.
    #[activity(name = "apply_decision")]
    pub async fn apply_decision(
        self: Arc<Self>,
        ctx: ActivityContext,
        input: ApplyDecisionInput,
    ) -> Result<DecisionOutcome, ActivityError> {
        let ApplyDecisionInput { payment_id, decision, reason, submit_accepted } = &input;
        let payment = self.payment(payment_id).await?;
        let adapter = CancelAdapter::for_decision(self.session(&payment), decision, *submit_accepted);
        let applied = decision::apply_decision(&adapter, &payment, decision, *reason);
        let outcome = match unless_cancelled(&ctx, applied).await? {
            // A repeat never succeeds: the operators read why, and may decide again.
            Err(error) if error.is_final() => self.refuse_decision(decision, &error).await?,
            outcome => outcome.map_err(ledger_failure)?,
        };
        let label = match &outcome {
            DecisionOutcome::Refused { .. } => "refused",
            _ => "applied",
        };
        metrics::counter!("payments_decisions_total", "action" => decision.action.as_str(), "outcome" => label)
            .increment(1);
        Ok(outcome)
    }
}
