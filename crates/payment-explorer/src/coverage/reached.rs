//! The outcomes and branches that an exploration reached.

use std::collections::BTreeMap;

use payment_protocol::facts::ReserveRecord;
use payment_protocol::{FinalState, PaymentState};

use super::names::{attempt_outcome, attempt_reply, port_call, port_reply};
use crate::model::Model;
use crate::state::State;

/// The final state with its cause, or the reason for which the payment needs an operator; `None` for any other
/// state.
#[must_use]
pub fn outcome(state: &State) -> Option<String> {
    let bank = &state.bank;
    if bank.state == PaymentState::NeedsOperator {
        return bank.operator_reason.map(|reason| format!("needs_operator: {reason}"));
    }
    let end = bank.state.end()?;
    Some(match (&bank.cause, bank.reserve) {
        _ if end == FinalState::Settled => end.to_string(),
        (Some(cause), _) => format!("{end}: {}", cause.code()),
        (None, Some(ReserveRecord::Refused(refusal))) => format!("{end}: {refusal}"),
        (None, _) => end.to_string(),
    })
}

/// How often an exploration reached each branch.
#[must_use]
pub fn branches(model: &Model) -> BTreeMap<String, u64> {
    let mut reached = BTreeMap::new();
    for exchange in model.reached_workflow_exchanges() {
        let name = format!("{} -> {}", port_call(&exchange.call), port_reply(&exchange.reply));
        *reached.entry(name).or_default() += 1;
    }
    for exchange in model.reached_attempt_exchanges() {
        if let Some(name) = attempt_reply(&exchange.reply) {
            *reached.entry(name).or_default() += 1;
        }
    }
    for outcome in model.reached_outcomes() {
        *reached.entry(attempt_outcome(&outcome)).or_default() += 1;
    }
    reached
}
