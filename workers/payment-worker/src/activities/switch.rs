//! Steps at a switch: one attempt each. What an attempt does is the protocol's
//! ([`payment_protocol::submit`], [`payment_protocol::poll`], [`payment_protocol::cancel`],
//! [`payment_protocol::recall`], [`payment_protocol::decision`]); the repetition is the server's.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::operator::alerts::AlertKind;
use payment_protocol::Payment;
use payment_protocol::cancel::{self, CancelAttemptOutcome};
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{self, Decision, DecisionOutcome};
use payment_protocol::ids::SwitchName;
use payment_protocol::poll::{self, PollOutcome};
use payment_protocol::port::{CancelOutcome, RecallOutcome, SubmitOutcome, WaitOutcome};
use payment_protocol::recall::{self, RecallAttemptOutcome};
use payment_protocol::rules::FinalStatusRuling;
use payment_protocol::submit::{self, SubmitAttemptOutcome};
use serde::{Deserialize, Serialize};
use switch_client::SwitchClient;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::ledger::run_id;
use super::{again, no_outcome};
use crate::adapters::{CancelAdapter, RecallAdapter, SubmitAdapter, SubmitAdapterError, SwitchSession};

/// Input of cancel.
#[derive(Debug, Serialize, Deserialize)]
pub struct CancelInput {
    /// Which payment.
    pub payment: Payment,
    /// Why it was turned round.
    pub cause: Cause,
}

/// Input of poll.
#[derive(Debug, Serialize, Deserialize)]
pub struct PollInput {
    /// Which payment.
    pub payment: Payment,
    /// Whether it stands before a person: what that person knows already is then no news.
    pub standing: bool,
}

/// Input of apply_decision.
#[derive(Debug, Serialize, Deserialize)]
pub struct ApplyDecisionInput {
    /// Which payment.
    pub payment: Payment,
    /// What was decided.
    pub decision: Decision,
    /// What the payment stands for.
    pub reason: OperatorReason,
}

/// The ledger and a client for each switch, shared by all activities of this process.
pub struct SwitchActivities {
    /// Where the money is.
    pub ledger: Ledger,
    /// By name.
    pub clients: Arc<BTreeMap<SwitchName, SwitchClient>>,
}

impl SwitchActivities {
    /// A switch that is no longer configured is our fault and is waited for: nothing is concluded.
    fn session<'a>(&'a self, payment: &'a Payment) -> Result<SwitchSession<'a>, ActivityError> {
        let name = &payment.profile.switch;
        let client = self.clients.get(name).ok_or_else(|| {
            tracing::error!(switch = %name, payment.id = %payment.payment_id, "the switch is not configured");
            again("switch_not_configured", &format!("switch {name} is not configured here"), None)
        })?;
        Ok(SwitchSession { ledger: &self.ledger, client, payment })
    }

    /// Has a person see that the switch has not decided.
    async fn alert(&self, payment: &Payment, kind: AlertKind, detail: &str) -> Result<(), ActivityError> {
        metrics::counter!("payments_alerts_total", "kind" => kind.as_str()).increment(1);
        self.ledger.alert(&payment.payment_id, kind, detail).await.map_err(no_outcome)
    }
}

/// The pause that the switch asks for: by its clock, within the profile's own bound, since a clock that was wrong for
/// a moment must not put the payment to sleep, or because it is busy. The longer one holds.
fn pause(session: SwitchSession<'_>, not_before_ms: Option<u64>) -> Option<Duration> {
    let bound_ms = session.payment.profile.retry_interval_max_ms;
    let by_its_clock = not_before_ms.map(|wanted_ms| Duration::from_millis(wanted_ms.min(bound_ms)));
    by_its_clock.max(session.client.asked_to_wait())
}

#[activities]
impl SwitchActivities {
    /// One attempt at submit. Not known is an error, which the server repeats within the budget.
    #[activity]
    pub async fn submit(
        self: Arc<Self>,
        ctx: ActivityContext,
        payment: Payment,
    ) -> Result<SubmitOutcome, ActivityError> {
        let session = self.session(&payment)?;
        let adapter = SubmitAdapter::new(session, run_id(&ctx)?);
        let not_now = |kind, error: &SubmitAdapterError| {
            again(kind, &error.to_string(), session.client.asked_to_wait())
        };
        let attempt = submit::attempt(&adapter, &payment).await.map_err(|error| match error {
            SubmitAdapterError::Ledger(error) => no_outcome(error),
            SubmitAdapterError::LeftInPeace => not_now("switch_left_in_peace", &error),
            SubmitAdapterError::SwitchClock(_) => not_now("switch_clock_unknown", &error),
            SubmitAdapterError::NothingToReadBack(_) => not_now("switch_list_unknown", &error),
        })?;
        Ok(match attempt {
            SubmitAttemptOutcome::Accepted => SubmitOutcome::Accepted,
            SubmitAttemptOutcome::Refused { reason } => SubmitOutcome::Refused { reason },
            SubmitAttemptOutcome::Settled => SubmitOutcome::Settled,
            SubmitAttemptOutcome::NotSent(reason) => SubmitOutcome::NotSent(reason),
            SubmitAttemptOutcome::Unknown { detail } => {
                return Err(again("submit_unknown", &detail, session.client.asked_to_wait()));
            }
        })
    }

    /// One asking to cancel. Undecided is an error, which the server repeats for ever.
    #[activity]
    pub async fn cancel(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: CancelInput,
    ) -> Result<CancelOutcome, ActivityError> {
        let payment = &input.payment;
        let session = self.session(payment)?;
        let adapter = CancelAdapter::for_cancel(session, input.cause);
        Ok(match cancel::attempt(&adapter, payment).await.map_err(no_outcome)? {
            CancelAttemptOutcome::Void => CancelOutcome::Void,
            CancelAttemptOutcome::Settled => CancelOutcome::Settled,
            CancelAttemptOutcome::Differs => CancelOutcome::Differs,
            CancelAttemptOutcome::Undecidable(reason) => CancelOutcome::Undecidable(reason),
            CancelAttemptOutcome::Ended(end) => CancelOutcome::Ended(end),
            CancelAttemptOutcome::Retry { not_before_ms, detail, alert } => {
                if alert {
                    self.alert(payment, AlertKind::CancelUndecided, &detail).await?;
                }
                return Err(again("cancel_undecided", &detail, pause(session, not_before_ms)));
            }
        })
    }

    /// One asking for the money back. Undecided is an error, which the server repeats for ever.
    #[activity]
    pub async fn recall(
        self: Arc<Self>,
        _ctx: ActivityContext,
        payment: Payment,
    ) -> Result<RecallOutcome, ActivityError> {
        let session = self.session(&payment)?;
        let adapter = RecallAdapter { session };
        match recall::attempt(&adapter, &payment).await.map_err(no_outcome)? {
            RecallAttemptOutcome::Decided(recalled) => Ok(recalled),
            RecallAttemptOutcome::Retry { detail } => {
                self.alert(&payment, AlertKind::RecallUndecided, &detail).await?;
                Err(again("recall_undecided", &detail, pause(session, None)))
            }
        }
    }

    /// One look at a switch that does not call back. What is no news is an error, which the server
    /// repeats until the wait that it belongs to is over.
    #[activity]
    pub async fn poll(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: PollInput,
    ) -> Result<WaitOutcome, ActivityError> {
        let payment = &input.payment;
        let session = self.session(payment)?;
        let adapter = CancelAdapter::for_poll(session);
        match poll::poll(&adapter, payment).await.map_err(no_outcome)? {
            PollOutcome::SuccessReported if !input.standing || is_news(adapter.ruled()) => {
                Ok(WaitOutcome::SuccessReported)
            }
            PollOutcome::FailureReported { reason } if !input.standing => {
                Ok(WaitOutcome::FailureReported { reason })
            }
            PollOutcome::SuccessReported => {
                Err(again("poll_no_news", "a SUCCESS that is known to differ", None))
            }
            PollOutcome::FailureReported { reason } => Err(again("poll_no_news", &reason, None)),
            PollOutcome::Retry { detail } => Err(again("poll_undecided", &detail, pause(session, None))),
        }
    }

    /// Carries a decision out. It is closed in the ledger with what came of it, which a repeat gives
    /// again.
    #[activity]
    pub async fn apply_decision(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: ApplyDecisionInput,
    ) -> Result<DecisionOutcome, ActivityError> {
        let ApplyDecisionInput { payment, decision, reason } = &input;
        let adapter = CancelAdapter::for_decision(self.session(payment)?, decision);
        let came =
            decision::apply_decision(&adapter, payment, decision, *reason).await.map_err(no_outcome)?;
        let outcome = match &came {
            DecisionOutcome::Refused { .. } => "refused",
            _ => "carried_out",
        };
        metrics::counter!("payments_decisions_total", "action" => decision.action.as_str(), "outcome" => outcome)
            .increment(1);
        Ok(came)
    }
}

/// Whether a SUCCESS moves a payment that stands before a person: what differs from it is on record, and
/// is why it stands.
fn is_news(ruling: Option<FinalStatusRuling>) -> bool {
    matches!(ruling, Some(FinalStatusRuling::First | FinalStatusRuling::Same))
}
