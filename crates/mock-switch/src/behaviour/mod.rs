//! Scripted misbehaviour that a test or a sandbox amount requests.
//!
//! The JSON of a behaviour is part of the admin API and is defined by these types. `plan` combines the behaviours that
//! apply to a reference; the routes apply their faults.

mod fault;
mod script;

use serde::{Deserialize, Serialize};

pub use fault::{CancelFault, HttpFault, QueryFault, RecallFault, SubmitFault};
pub use script::{Always, Script, Step, Times};

use service_kit::problem::Problem;

/// Longest delay of settlement and callbacks, in milliseconds: a day.
const MAX_WAIT_MS: u64 = 86_400_000;
/// Longest time that a fault holds a request, in milliseconds: below the request timeout.
const MAX_HOLD_MS: u64 = 50_000;
/// Upper bound of copies of one callback.
const MAX_COPIES: u32 = 1000;

/// How the switch treats a reference. An absent field is taken from the next source: the reference's own behaviour, its
/// sandbox amount, the default behaviour, the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// Time from acceptance to the end of the transfer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_after_ms: Option<u64>,
    /// The end of an accepted transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Reason of a rejection or a refusal.
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
    /// Faults of the statement, one per request. Applies in the behaviour `statement` or the default behaviour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement: Option<Script<HttpFault>>,
    /// Faults of the listing, one per request. Applies in the behaviour `listing` or the default behaviour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listing: Option<Script<HttpFault>>,
    /// How the callback is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<CallbackBehaviour>,
}

/// The end of an accepted transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The transfer settles.
    Settle,
    /// The transfer is rejected.
    Reject,
    /// The transfer stays pending until the admin API ends it.
    Hold,
}

/// How the callback of a settled or rejected transfer is sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallbackBehaviour {
    /// The callback is never sent.
    pub lose: bool,
    /// Number of copies, all with the same id. Absent: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// Delay of the callback, in milliseconds; later callbacks may overtake this one.
    pub delay_ms: u64,
    /// A second event that contradicts the true one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contradict: Option<Contradiction>,
    /// The callback names this amount instead of the true one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount_minor: Option<i64>,
    /// A SUCCESS is sent at acceptance, before the transfer settles.
    pub early: bool,
    /// The SUCCESS says where the money is at the receiving bank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub posting: Option<Posting>,
}

/// Where the money of a settled transfer is at the receiving bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Posting {
    /// The payee has it.
    Posted,
    /// The receiving bank has not posted it yet.
    Pending,
    /// The receiving bank keeps it back.
    Blocked,
    /// The receiving bank will return it.
    ReturnComing,
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
    /// Checks the bounds of delays, copies, steps and amounts.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let callback = self.callback.clone().unwrap_or_default();
        let within_bounds = self.settle_after_ms.is_none_or(|ms| ms <= MAX_WAIT_MS)
            && callback.delay_ms <= MAX_WAIT_MS
            && callback.copies.is_none_or(|copies| copies <= MAX_COPIES)
            && callback.amount_minor.is_none_or(|amount| amount > 0)
            && self.reject_reason.as_ref().is_none_or(|reason| reason.len() <= 128)
            && self.submit.as_ref().is_none_or(|script| script.is_within_bounds(SubmitFault::hold_ms))
            && self.query.as_ref().is_none_or(|script| script.is_within_bounds(QueryFault::hold_ms))
            && self.cancel.as_ref().is_none_or(|script| script.is_within_bounds(CancelFault::hold_ms))
            && self.recall.as_ref().is_none_or(|script| script.is_within_bounds(RecallFault::hold_ms))
            && self.statement.as_ref().is_none_or(|script| script.is_within_bounds(HttpFault::hold_ms))
            && self.listing.as_ref().is_none_or(|script| script.is_within_bounds(HttpFault::hold_ms));
        if within_bounds {
            return Ok(());
        }
        let detail = format!(
            "allowed are at most {MAX_WAIT_MS} ms to settle or to delay a callback, {MAX_HOLD_MS} ms to hold a \
             request, {MAX_COPIES} copies and {} steps per script; amounts must be above zero",
            script::MAX_STEPS
        );
        Err(Problem::bad_request("behaviour_out_of_bounds", detail))
    }
}
