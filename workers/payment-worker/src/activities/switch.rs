//! Steps at a switch: one attempt each. What an attempt does is the protocol's
//! ([`payment_protocol::submit`], [`payment_protocol::cancel`], [`payment_protocol::recall`]); the
//! repetition is the server's.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use payment_ledger::Ledger;
use payment_protocol::Payment;
use payment_protocol::cancel::{self, Asking};
use payment_protocol::cause::Cause;
use payment_protocol::ids::SwitchName;
use payment_protocol::recall::{self, Recalling};
use payment_protocol::submit::{self, Attempt};
use payment_protocol::world::{Asked, Recalled, Submitted};
use serde::{Deserialize, Serialize};
use switch_client::SwitchClient;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::ledger::run_id;
use super::{again, no_outcome};
use crate::doors::{AskDoor, BackDoor, DoorError, SendDoor};

/// Input of ask_to_cancel.
#[derive(Debug, Serialize, Deserialize)]
pub struct AskInput {
    /// Which payment.
    pub payment: Payment,
    /// Why it was turned round.
    pub cause: Cause,
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
    fn client(&self, payment: &Payment) -> Result<&SwitchClient, ActivityError> {
        let name = &payment.profile.switch;
        self.clients.get(name).ok_or_else(|| {
            tracing::error!(switch = %name, payment.id = %payment.payment_id, "the switch is not configured");
            again("switch_not_configured", &format!("switch {name} is not configured here"), None)
        })
    }
}

/// The pause that the switch's clock asks for, within the profile's own bound: a clock that was wrong
/// for a moment must not put the payment to sleep.
fn longest_pause(payment: &Payment, not_before_ms: Option<u64>) -> Option<Duration> {
    not_before_ms.map(|wanted_ms| Duration::from_millis(wanted_ms.min(payment.profile.ask_interval_max_ms)))
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
        let door = SendDoor {
            ledger: &self.ledger,
            client: self.client(&payment)?,
            payment: &payment,
            run: run_id(&ctx)?,
            order: std::sync::OnceLock::new(),
        };
        let attempt = submit::attempt(&door, &payment.profile).await.map_err(|error| match error {
            DoorError::Ledger(error) => no_outcome(error),
            DoorError::LeftInPeace => again("switch_left_in_peace", &error.to_string(), None),
            DoorError::SwitchClock(_) => again("switch_clock_unknown", &error.to_string(), None),
        })?;
        Ok(match attempt {
            Attempt::Accepted => Submitted::Accepted,
            Attempt::Refused { reason } => Submitted::Refused { reason },
            Attempt::Settled => Submitted::Settled,
            Attempt::NotSent(reason) => Submitted::NotSent(reason),
            Attempt::Unknown { detail } => return Err(again("submit_unknown", &detail, None)),
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
        let door =
            AskDoor { ledger: &self.ledger, client: self.client(payment)?, payment, cause: &input.cause };
        Ok(match cancel::ask(&door, &payment.profile).await.map_err(no_outcome)? {
            Asking::Dead => Asked::Dead,
            Asking::Settled => Asked::Settled,
            Asking::Differs => Asked::Differs,
            Asking::Undecidable(reason) => Asked::Undecidable(reason),
            Asking::Ended(end) => Asked::Ended(end),
            Asking::Again { not_before_ms, detail, alert } => {
                if alert {
                    metrics::counter!("payments_alerts_total", "kind" => "cancel_undecided").increment(1);
                    self.ledger
                        .alert(&payment.payment_id, "cancel_undecided", &detail)
                        .await
                        .map_err(no_outcome)?;
                }
                return Err(again("cancel_undecided", &detail, longest_pause(payment, not_before_ms)));
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
        let door = BackDoor { ledger: &self.ledger, client: self.client(&payment)?, payment: &payment };
        match recall::ask(&door, &payment.profile).await.map_err(no_outcome)? {
            Recalling::Decided(recalled) => Ok(recalled),
            Recalling::Again { detail } => {
                self.ledger
                    .alert(&payment.payment_id, "recall_undecided", &detail)
                    .await
                    .map_err(no_outcome)?;
                Err(again("recall_undecided", &detail, None))
            }
        }
    }
}
