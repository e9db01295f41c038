//! The moves of an older run: Temporal was restored, or failed over, or the starter took the run for lost, and the run's own
//! workers go on. Both runs are alive, and each makes its own steps.

use payment_protocol::FinalState;

use super::collector::{Move, MoveList};
use super::engine::deliver;
use super::payment;
use crate::state::{OlderRun, RunningWorkflow, State, WorkflowState};
use crate::words;

/// Adds every step of the older run.
pub(super) fn add(list: &mut MoveList<'_>) {
    if list.from.older.is_none() {
        return;
    }
    let mut swapped = list.from.clone();
    swapped.swap_runs();
    let mut steps = list.swapped(&swapped);
    payment::add(&mut steps);
    // The inbox is delivered to the present run; the older one may receive the same signals.
    if matches!(swapped.workflow, WorkflowState::Running(_)) && list.observation.inbox {
        for event in &swapped.messages {
            steps
                .optional(|next| deliver(next, event.clone()), || format!("signal: {}", words::event(event)));
        }
    }
    for Move { mut next, benign, description } in steps.into_moves() {
        next.swap_runs();
        list.push(next, benign, || format!("older run: {description}"));
    }
}

/// Adds the moves after which an older run goes on beside the present one.
pub(super) fn splits(list: &mut MoveList<'_>, running: &RunningWorkflow) {
    if list.from.older.is_some() {
        return;
    }
    for kept in 0..=running.history.len() {
        list.second_run(
            |next| {
                set_aside(next);
                if let WorkflowState::Running(copy) = &mut next.workflow {
                    copy.history.truncate(kept);
                    copy.inbox.clear();
                }
            },
            || format!("Temporal goes on from a copy with the first {kept} replies, and the older run goes on too"),
        );
    }
    list.second_run(
        |next| {
            set_aside(next);
            next.workflow = WorkflowState::Lost;
        },
        || "the starter takes the run for lost, and the run goes on".into(),
    );
}

/// Makes the present run the older one; its copy has scheduled nothing yet.
fn set_aside(next: &mut State) {
    let (current, tried_to_send) = (next.current.take(), next.tried_to_send);
    next.older = Some(Box::new(OlderRun { workflow: next.workflow.clone(), current, tried_to_send }));
    next.tried_to_send = false;
}

/// Lets an older run go that has ended as the payment's row says.
pub(super) fn forget_agreeing(next: &mut State) {
    let agrees = |older: &OlderRun| match &older.workflow {
        WorkflowState::Closed(result) => {
            let end = result.as_ref().map_or_else(|error| error.end, |()| Some(FinalState::Settled));
            end.is_some() && next.bank.state.end() == end
        }
        _ => false,
    };
    if next.older.as_deref().is_some_and(agrees) {
        next.older = None;
    }
}
