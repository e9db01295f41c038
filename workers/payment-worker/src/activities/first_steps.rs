//! The first steps of a payment as one local activity: reserve, then submit while the switch is quick
//! ([`super::local_submits`]).

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::sync::Arc;
use std::time::Duration;

use payment_protocol::Payment;
use payment_protocol::port::{ReserveOutcome, SubmitOutcome};
use serde::{Deserialize, Serialize};
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use tokio::time::Instant;

use super::failure_kind;
use super::ledger::{LedgerActivities, run_id};
use super::switch::SwitchActivities;

/// Result of the first steps.
#[derive(Debug, Serialize, Deserialize)]
pub struct FirstSteps {
    /// The outcome of reserve.
    pub reserve: ReserveOutcome,
    /// The submit attempt that followed; `None` if none was made.
    pub submit: Option<LocalSubmit>,
}

/// A submit attempt within a workflow task.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LocalSubmit {
    /// The outcome of submit.
    Outcome(SubmitOutcome),
    /// The outcome is unknown: repeat the attempt by an ordinary activity.
    Repeat {
        /// Why the outcome is unknown.
        failure: String,
        /// How long the switch asked us to wait; `None` if it did not.
        retry_after_ms: Option<u64>,
        /// How much of submit's time budget the attempt used.
        took_ms: u64,
    },
}

/// Dependencies of the first steps.
pub struct FirstStepsActivities {
    /// The ledger's steps.
    pub ledger: Arc<LedgerActivities>,
    /// The attempts at switches.
    pub switch: Arc<SwitchActivities>,
}

#[activities]
impl FirstStepsActivities {
    /// Reserves the amount and, if the switch is quick, makes one submit attempt, recorded with the reserve in the plain case. Only for a
    /// switch at which a submit may be repeated: an activity that is lost with its worker is made again.
    #[activity(name = "reserve_and_submit")]
    pub async fn reserve_and_submit(
        self: Arc<Self>,
        ctx: ActivityContext,
        payment: Payment,
    ) -> Result<FirstSteps, ActivityError> {
        let run = run_id(&ctx)?;
        let Some(_permit) = self.switch.local_submits.permit(&payment.profile.switch) else {
            let reserve = self.ledger.try_reserve(&payment, &run).await?;
            return Ok(FirstSteps { reserve, submit: None });
        };
        let began = Instant::now();
        let reserved = || self.ledger.wake_relay.fire();
        let tried = match self.switch.try_first_submit(&payment, run.clone(), reserved).await {
            Some(tried) => tried,
            None => {
                let reserve = self.ledger.try_reserve(&payment, &run).await?;
                if reserve != ReserveOutcome::Held {
                    return Ok(FirstSteps { reserve, submit: None });
                }
                self.switch.try_submit(&payment, run, false).await
            }
        };
        let submit = tried.outcome.map_or_else(
            |error| LocalSubmit::Repeat {
                failure: failure_kind(&error),
                retry_after_ms: tried.retry_after.map(millis),
                took_ms: millis(began.elapsed()),
            },
            LocalSubmit::Outcome,
        );
        Ok(FirstSteps { reserve: ReserveOutcome::Held, submit: Some(submit) })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
