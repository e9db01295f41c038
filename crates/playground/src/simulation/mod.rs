//! The simulation: the explorer's bank, switch and network, with the protocol's own code, along one sequence of events.
//!
//! | file | question |
//! |---|---|
//! | `choice.rs` | which of the explorer's moves comes next? |
//! | `narration.rs` | who acts in a move, and when? |
//! | `naive.rs` | what does the naive client make of the same schedule? |
//!
//! Nothing here decides what a move does: [`payment_explorer::moves::moves`] does, with the code that the payment-worker runs.

mod choice;
mod naive;
mod narration;

use std::collections::HashSet;

use payment_explorer::model::{Model, WalkBounds};
use payment_explorer::moves::{Move, moves};
use payment_explorer::state::{State, WorkflowState};
use payment_explorer::switch::TransferStatus;
use payment_explorer::tiers::Walk;
use payment_explorer::{invariants, profiles};

use crate::run::{AMOUNT_MINOR, Entry, Outcome, Run, Side, Step};
use crate::schedule::{Drop, Instant, Schedule};
use choice::Choice;

/// The profile of a switch that offers everything, as the demo's.
pub const DEFAULT_PROFILE: &str = "query:query+dedup+tombstone+deadline+cancel+recall+callback+confirm";
/// More moves than any schedule needs.
const MOVES_MAX: usize = 400;

/// Why a simulation has no result.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The name of a switch profile is wrong, or the protocol refuses the profile.
    #[error("the switch profile {name:?} is not accepted: {reason}")]
    Profile {
        /// The name.
        name: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The schedule's fault does not exist at this switch.
    #[error("{drop} does not happen at this switch: {reason}")]
    NotAtThisSwitch {
        /// The fault.
        drop: Drop,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// An invariant does not hold: a bug of the protocol.
    #[error("{number} does not hold: {invariant}")]
    Violation {
        /// The invariant's number.
        number: &'static str,
        /// The invariant.
        invariant: &'static str,
    },
    /// The payment did not end within the bound of moves: a bug of the simulation.
    #[error("the payment did not end within {MOVES_MAX} moves; it waits at {waits_at}")]
    NoEnd {
        /// The last move.
        waits_at: String,
    },
}

/// The names of the rails' profiles, and of every switch profile that the protocol accepts, with callbacks that move money at once and with
/// callbacks that a query must confirm.
///
/// # Errors
/// A built-in profile is invalid, which does not occur.
pub fn profile_names() -> Result<Vec<String>, SimulationError> {
    let invalid =
        |e: anyhow::Error| SimulationError::Profile { name: "built in".into(), reason: e.to_string() };
    let rails = profiles::rails().map_err(invalid)?;
    let confirming = profiles::confirming().map_err(invalid)?;
    let accepted = profiles::accepted().map_err(invalid)?;
    Ok(rails.iter().chain(&confirming).chain(&accepted).map(profiles::name).collect())
}

/// Runs a schedule at a switch with this profile, on both sides.
///
/// # Errors
/// The profile is not accepted, the schedule has a fault that its switch cannot have, or an invariant does not hold.
pub fn simulate(profile: &str, schedule: &Schedule) -> Result<Run, SimulationError> {
    let model = model(profile)?;
    let (mut steps, with_keys) = run(&model, schedule)?;
    let (naive_steps, without_keys) = naive::run(schedule);
    steps.extend(naive_steps);
    Ok(Run { steps, with_keys, without_keys })
}

fn model(name: &str) -> Result<Model, SimulationError> {
    let refused = |reason: String| SimulationError::Profile { name: name.to_owned(), reason };
    let profile = profiles::named(name).map_err(|error| refused(error.to_string()))?;
    profile.check().map_err(|error| refused(error.to_string()))?;
    // Bounds that no schedule exhausts.
    let bounds =
        WalkBounds { second_runs: 0, second_payments: 0, ..Walk::new(profile.clone(), 9, 9, 9).bounds };
    Model::new(profile, bounds).map_err(|error| refused(error.to_string()))
}

fn run(model: &Model, schedule: &Schedule) -> Result<(Vec<Step>, Outcome), SimulationError> {
    let [mut state, _] =
        Walk { profile: model.profile().clone(), bounds: model.bounds, states_max: 0 }.first_states();
    let mut choice = Choice::new(schedule);
    let mut steps = narration::order(schedule);
    let mut visited = HashSet::from([state.clone()]);
    let mut at = Instant::Order;
    for _ in 0..MOVES_MAX {
        let all = moves(model, &state, true);
        let Some(chosen) = choice.next(model, &state, &all, &visited) else {
            return finish(model, &state, choice, steps);
        };
        at = at.max(chosen.at.unwrap_or(at));
        for text in chosen.remarks {
            steps.push(narration::remark(chosen.at.unwrap_or(at), text, chosen.fault));
        }
        let Some(Move { next, description, .. }) = chosen.taken.and_then(|taken| all.into_iter().nth(taken))
        else {
            continue;
        };
        if let Some(violation) = invariants::violated(model, &state, &next) {
            let payment_explorer::invariants::Violation { number, invariant } = violation;
            return Err(SimulationError::Violation { number, invariant });
        }
        let description = narration::booked(&description, &state.bank, &next.bank);
        steps.push(narration::step(chosen.at.unwrap_or(at), description, chosen.fault));
        visited.insert(next.clone());
        state = next;
    }
    let waits_at = steps.last().map_or_else(String::new, |step| step.text.clone());
    Err(SimulationError::NoEnd { waits_at })
}

fn finish(
    model: &Model,
    state: &State,
    choice: Choice<'_>,
    steps: Vec<Step>,
) -> Result<(Vec<Step>, Outcome), SimulationError> {
    if !state.bank.ended() || matches!(state.workflow, WorkflowState::Running(_)) {
        let waits_at = steps.last().map_or_else(String::new, |step| step.text.clone());
        return Err(SimulationError::NoEnd { waits_at });
    }
    if let Some(drop) = choice.unused() {
        return Err(SimulationError::NotAtThisSwitch { drop, reason: not_at_this_switch(model, drop) });
    }
    Ok((steps, outcome(state)))
}

/// Why a fault found no moment.
fn not_at_this_switch(model: &Model, drop: Drop) -> &'static str {
    let profile = model.profile();
    match drop.at {
        Instant::Confirmation if !profile.has_callback => {
            "it sends no callbacks; choose a switch with callbacks"
        }
        Instant::Retry => "it allows no second attempt; choose a switch with queries or deduplication",
        Instant::Recall => "it is not asked for the money; choose a switch that can recall",
        _ => "the payment ends before; remove this fault or another one",
    }
}

fn outcome(state: &State) -> Outcome {
    let journal = state.bank.journal;
    let mut entries = Vec::new();
    for (times, text, amount_minor) in [
        (journal.debit, "Payment", -AMOUNT_MINOR),
        (journal.late_debit, "Payment, debited by two operators", -AMOUNT_MINOR),
    ] {
        for _ in 0..times {
            entries.push(Entry { text: text.into(), amount_minor });
        }
    }
    let settled = state.switch.transfers.iter().filter(|status| **status == TransferStatus::Settled).count();
    let charged_minor = -entries.iter().map(|entry| entry.amount_minor).sum::<i64>();
    Outcome {
        answer: state.bank.state.to_string(),
        entries,
        charged_minor,
        claimed_minor: AMOUNT_MINOR.saturating_mul(i64::from(journal.claim)),
        left_minor: AMOUNT_MINOR.saturating_mul(i64::try_from(settled).unwrap_or(i64::MAX)),
    }
}

impl Step {
    /// A step of the simulation, which has no clock.
    fn simulated(
        side: Side,
        at: Instant,
        actor: crate::run::Actor,
        text: String,
        fault: Option<crate::schedule::Fault>,
    ) -> Self {
        Self { side, at, actor, text, fault, after_ms: None }
    }
}
