//! Steps at a switch: one attempt each. What an attempt does is the protocol's
//! ([`payment_protocol::submit`], [`payment_protocol::poll`], [`payment_protocol::cancel`],
//! [`payment_protocol::recall`], [`payment_protocol::decision`]); the repetition is the server's.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::operator::AlertKind;
use payment_protocol::Payment;
use payment_protocol::cancel::{self, Asking};
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{self, CarriedOut, Decision};
use payment_protocol::ids::SwitchName;
use payment_protocol::poll::{self, Polled};
use payment_protocol::recall::{self, Recalling};
use payment_protocol::rules::VerdictRuling;
use payment_protocol::submit::{self, Attempt};
use payment_protocol::world::{Asked, Event, Recalled, Submitted};
use serde::{Deserialize, Serialize};
use switch_client::SwitchClient;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::ledger::run_id;
use super::{again, no_outcome};
use crate::doors::{AskDoor, BackDoor, DoorError, Line, SendDoor};

/// Input of ask_to_cancel.
#[derive(Debug, Serialize, Deserialize)]
pub struct AskInput {
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

/// Input of carry_out.
#[derive(Debug, Serialize, Deserialize)]
pub struct CarryOutInput {
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
    fn line<'a>(&'a self, payment: &'a Payment) -> Result<Line<'a>, ActivityError> {
        let name = &payment.profile.switch;
        let client = self.clients.get(name).ok_or_else(|| {
            tracing::error!(switch = %name, payment.id = %payment.payment_id, "the switch is not configured");
            again("switch_not_configured", &format!("switch {name} is not configured here"), None)
        })?;
        Ok(Line { ledger: &self.ledger, client, payment })
    }

    /// Has a person see that the switch has not decided.
    async fn alert(&self, payment: &Payment, kind: AlertKind, detail: &str) -> Result<(), ActivityError> {
        metrics::counter!("payments_alerts_total", "kind" => kind.as_str()).increment(1);
        self.ledger.alert(&payment.payment_id, kind, detail).await.map_err(no_outcome)
    }
}

/// The pause that the switch asks for: by its clock, within the profile's own bound, since a clock that was wrong for
/// a moment must not put the payment to sleep, or because it is busy. The longer one holds.
fn pause(line: Line<'_>, not_before_ms: Option<u64>) -> Option<Duration> {
    let bound_ms = line.payment.profile.ask_interval_max_ms;
    let by_its_clock = not_before_ms.map(|wanted_ms| Duration::from_millis(wanted_ms.min(bound_ms)));
    by_its_clock.max(line.client.asked_to_wait())
}

#[activities]
impl SwitchActivities {
    /// One attempt at submit. Not known is an error, which the server repeats within the budget.
    #[activity]
    pub async fn submit(
        self: Arc<Self>,
        ctx: ActivityContext,
        payment: Payment,
    ) -> Result<Submitted, ActivityError> {
        let line = self.line(&payment)?;
        let door = SendDoor::new(line, run_id(&ctx)?);
        let not_now = |kind, error: &DoorError| again(kind, &error.to_string(), line.client.asked_to_wait());
        let attempt = submit::attempt(&door, &payment).await.map_err(|error| match error {
            DoorError::Ledger(error) => no_outcome(error),
            DoorError::LeftInPeace => not_now("switch_left_in_peace", &error),
            DoorError::SwitchClock(_) => not_now("switch_clock_unknown", &error),
            DoorError::NothingToReadBack(_) => not_now("switch_list_unknown", &error),
        })?;
        Ok(match attempt {
            Attempt::Accepted => Submitted::Accepted,
            Attempt::Refused { reason } => Submitted::Refused { reason },
            Attempt::Settled => Submitted::Settled,
            Attempt::NotSent(reason) => Submitted::NotSent(reason),
            Attempt::Unknown { detail } => {
                return Err(again("submit_unknown", &detail, line.client.asked_to_wait()));
            }
        })
    }

    /// One asking to cancel. Undecided is an error, which the server repeats for ever.
    #[activity]
    pub async fn ask_to_cancel(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: AskInput,
    ) -> Result<Asked, ActivityError> {
        let payment = &input.payment;
        let line = self.line(payment)?;
        let door = AskDoor::to_cancel(line, input.cause);
        Ok(match cancel::ask(&door, payment).await.map_err(no_outcome)? {
            Asking::Dead => Asked::Dead,
            Asking::Settled => Asked::Settled,
            Asking::Differs => Asked::Differs,
            Asking::Undecidable(reason) => Asked::Undecidable(reason),
            Asking::Ended(end) => Asked::Ended(end),
            Asking::Again { not_before_ms, detail, alert } => {
                if alert {
                    self.alert(payment, AlertKind::CancelUndecided, &detail).await?;
                }
                return Err(again("cancel_undecided", &detail, pause(line, not_before_ms)));
            }
        })
    }

    /// One asking for the money back. Undecided is an error, which the server repeats for ever.
    #[activity]
    pub async fn recall(
        self: Arc<Self>,
        _ctx: ActivityContext,
        payment: Payment,
    ) -> Result<Recalled, ActivityError> {
        let line = self.line(&payment)?;
        let door = BackDoor { line };
        match recall::ask(&door, &payment).await.map_err(no_outcome)? {
            Recalling::Decided(recalled) => Ok(recalled),
            Recalling::Again { detail } => {
                self.alert(&payment, AlertKind::RecallUndecided, &detail).await?;
                Err(again("recall_undecided", &detail, pause(line, None)))
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
    ) -> Result<Event, ActivityError> {
        let payment = &input.payment;
        let line = self.line(payment)?;
        let door = AskDoor::to_look(line);
        match poll::poll(&door, payment).await.map_err(no_outcome)? {
            Polled::SuccessReported if !input.standing || is_news(door.ruled()) => Ok(Event::SuccessReported),
            Polled::FailureReported { reason } if !input.standing => Ok(Event::FailureReported { reason }),
            Polled::SuccessReported => Err(again("poll_no_news", "a SUCCESS that is known to differ", None)),
            Polled::FailureReported { reason } => Err(again("poll_no_news", &reason, None)),
            Polled::Again { detail } => Err(again("poll_undecided", &detail, pause(line, None))),
        }
    }

    /// Carries a decision out. It is closed in the ledger with what came of it, which a repeat gives
    /// again.
    #[activity]
    pub async fn carry_out(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: CarryOutInput,
    ) -> Result<CarriedOut, ActivityError> {
        let CarryOutInput { payment, decision, reason } = &input;
        let door = AskDoor::to_carry_out(self.line(payment)?, decision);
        let came = decision::carry_out(&door, payment, decision, *reason).await.map_err(no_outcome)?;
        let outcome = match &came {
            CarriedOut::Refused { .. } => "refused",
            _ => "carried_out",
        };
        metrics::counter!("payments_decisions_total", "action" => decision.action.as_str(), "outcome" => outcome)
            .increment(1);
        Ok(came)
    }
}

/// Whether a SUCCESS moves a payment that stands before a person: what differs from it is on record, and
/// is why it stands.
fn is_news(ruling: Option<VerdictRuling>) -> bool {
    matches!(ruling, Some(VerdictRuling::First | VerdictRuling::Same))
}
