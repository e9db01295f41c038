//! Scripted misbehaviour: what a test or an amount can ask of the switch.
//!
//! The JSON of a behaviour is the API, so the types here say it whole. How
//! behaviours from several places combine is in `plan`, what a fault does to a
//! request is in the routes.

mod fault;
mod plan;
mod script;

use serde::{Deserialize, Serialize};

pub use fault::{CancelFault, HttpFault, QueryFault, RecallFault, SubmitFault};
pub(crate) use plan::{DEFAULT, Plan, Settlement, load, load_many};
pub use script::{Script, Step, Times};

use crate::error::Failure;
use service_kit::problem::Problem;

/// Longest time a behaviour may ask for, in milliseconds: a day for settlement
/// and callbacks.
const MAX_WAIT_MS: u64 = 86_400_000;
/// Longest time a fault may hold a request, in milliseconds: below the request timeout.
const MAX_HOLD_MS: u64 = 50_000;
/// Most copies of one callback.
const MAX_COPIES: u32 = 1000;

/// How the switch treats a reference. Every field may be left out; then the
/// next place decides: the reference's own behaviour, its sandbox amount, the
/// default behaviour, the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// From acceptance to the end, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_after_ms: Option<u64>,
    /// How an accepted transfer ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Reason given with a rejection or a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reject_reason: Option<String>,
    /// Faults of submits, one per request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit: Option<Script<SubmitFault>>,
    /// Faults of queries, one per request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<Script<QueryFault>>,
    /// Faults of cancels, one per request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Script<CancelFault>>,
    /// Faults of recalls, one per request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recall: Option<Script<RecallFault>>,
    /// Faults of the statement, one per request. Met in the behaviour of `statement` or the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement: Option<Script<HttpFault>>,
    /// Faults of the listing, one per request. Met in the behaviour of `listing` or the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listing: Option<Script<HttpFault>>,
    /// What becomes of the callback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<CallbackBehaviour>,
}

/// How an accepted transfer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It settles.
    Settle,
    /// It is rejected.
    Reject,
    /// It stays pending until told.
    Hold,
}

/// What becomes of the callback of a settled or rejected transfer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallbackBehaviour {
    /// It is never sent.
    pub lose: bool,
    /// It is sent so many times, all with the same id. Left out: once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// It is sent so much later, in milliseconds; so later ones overtake it.
    pub delay_ms: u64,
    /// Another event says the opposite, or pretends to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contradict: Option<Contradiction>,
    /// It names this amount instead of the true one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount_minor: Option<i64>,
    /// A SUCCESS is sent with the acceptance, although nothing settled.
    pub early: bool,
}

/// A second event, with an id of its own, that contradicts the true one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contradiction {
    /// FAILURE is delivered before the true event.
    FailureFirst,
    /// FAILURE is delivered after the true event.
    FailureAfter,
    /// SUCCESS is delivered after the true event.
    SuccessAfter,
}

impl Behaviour {
    /// Refuses what the switch could not keep its own bounds with.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let callback = self.callback.clone().unwrap_or_default();
        let fits = self.settle_after_ms.is_none_or(|ms| ms <= MAX_WAIT_MS)
            && callback.delay_ms <= MAX_WAIT_MS
            && callback.copies.is_none_or(|copies| copies <= MAX_COPIES)
            && callback.amount_minor.is_none_or(|amount| amount > 0)
            && self.reject_reason.as_ref().is_none_or(|reason| reason.len() <= 128)
            && self.submit.as_ref().is_none_or(|script| script.fits(SubmitFault::hold_ms))
            && self.query.as_ref().is_none_or(|script| script.fits(QueryFault::hold_ms))
            && self.cancel.as_ref().is_none_or(|script| script.fits(CancelFault::hold_ms))
            && self.recall.as_ref().is_none_or(|script| script.fits(RecallFault::hold_ms))
            && self.statement.as_ref().is_none_or(|script| script.fits(HttpFault::hold_ms))
            && self.listing.as_ref().is_none_or(|script| script.fits(HttpFault::hold_ms));
        if fits {
            return Ok(());
        }
        let detail = format!(
            "at most {MAX_WAIT_MS} ms to settle or delay a callback, {MAX_HOLD_MS} ms to hold a \
             request, {MAX_COPIES} copies, {} steps a script; amounts above zero",
            script::MAX_STEPS
        );
        Err(Problem::bad_request("behaviour_out_of_bounds", detail).into())
    }
}
