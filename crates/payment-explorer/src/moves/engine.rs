//! The moves of Temporal and the starter: starts, signals, cancellations, losses of every kind.

use payment_protocol::cause::ReserveRefusal;
use payment_protocol::port::{SubmitProgress, WaitOutcome};

use super::collector::MoveList;
use super::older;
use crate::state::{RunningWorkflow, State, WorkflowState, Zombie};
use crate::words;

pub(super) fn add(list: &mut MoveList<'_>) {
    match &list.from.workflow {
        WorkflowState::NotStarted => start(list),
        WorkflowState::Running(running) => {
            if list.observation.inbox {
                signals(list);
            }
            losses(list, running);
            older::splits(list, running);
        }
        // The payment's row shows no end: its commit was lost.
        WorkflowState::Lost | WorkflowState::Closed(_) => recover(list),
    }
}

fn start(list: &mut MoveList<'_>) {
    let bank = &list.from.bank;
    let refusal = if bank.cancel_requested {
        Some(ReserveRefusal::CustomerCancel)
    } else if bank.too_late {
        Some(ReserveRefusal::StartedTooLate)
    } else {
        None
    };
    match refusal {
        Some(refusal) => list.benign(
            |next| {
                next.bank.refuse_unreserved(refusal);
                next.workflow = WorkflowState::Lost;
            },
            || format!("the starter refuses the payment: {refusal}"),
        ),
        None => list.benign(
            |next| {
                next.bank.mark_started();
                run_workflow(next, 0, 0);
            },
            || "the starter starts the workflow".into(),
        ),
    }
    // The starter read the row before the cancel or before `valid_until`; or it crashes before it marks the start.
    list.optional(|next| run_workflow(next, 0, 0), || "the starter starts the workflow, unmarked".into());
}

fn run_workflow(next: &mut State, run: u8, resume: u8) {
    let running = RunningWorkflow { run, resume, history: Vec::new(), inbox: Vec::new() };
    next.workflow = WorkflowState::Running(running);
    // A new run counts the tries of its own submit.
    next.tried_to_send = false;
}

fn signals(list: &mut MoveList<'_>) {
    for (at, event) in list.from.messages.iter().enumerate() {
        list.benign(
            |next| {
                // A decision is delivered until it is applied: Temporal may lose a delivered one.
                if !matches!(event, WaitOutcome::Decided(_)) {
                    next.messages.remove(at);
                }
                deliver(next, event.clone());
            },
            || format!("signal: {}", words::event(event)),
        );
        list.fault(
            |next| deliver(next, event.clone()),
            || format!("signal, delivered again later: {}", words::event(event)),
        );
    }
    list.fault(
        |next| deliver(next, WaitOutcome::CustomerCancel),
        || "the workflow receives a cancellation request".into(),
    );
}

/// Delivers a signal; one that is already in the inbox is not stored twice.
pub(super) fn deliver(next: &mut State, event: WaitOutcome) {
    if let WorkflowState::Running(running) = &mut next.workflow
        && !running.inbox.contains(&event)
    {
        running.inbox.push(event);
    }
}

fn losses(list: &mut MoveList<'_>, running: &RunningWorkflow) {
    list.fault(
        |next| {
            abandon(next);
            next.workflow = WorkflowState::Lost;
        },
        || "the workflow is terminated".into(),
    );
    for kept in 0..running.history.len() {
        // A new run that starts with the first part of the old run's history.
        list.fault(
            |next| {
                abandon(next);
                // A run number that no other run has: each loss costs a fault.
                let run = 100 + next.budget.faults;
                if let WorkflowState::Running(running) = &mut next.workflow {
                    running.history.truncate(kept);
                    running.run = run;
                    next.tried_to_send = false;
                }
            },
            || format!("the workflow is reset to its first {kept} replies"),
        );
        // The same run, restored from an older backup of Temporal's database.
        list.fault(
            |next| {
                abandon(next);
                if let WorkflowState::Running(running) = &mut next.workflow {
                    running.history.truncate(kept);
                    running.inbox.clear();
                }
            },
            || format!("Temporal is restored with the first {kept} replies"),
        );
    }
}

/// Turns the running attempt into a zombie.
pub(super) fn abandon(next: &mut State) {
    if let Some(attempt) = next.current.take() {
        next.zombies.push(Zombie::Attempt(attempt));
    }
}

fn recover(list: &mut MoveList<'_>) {
    if list.from.bank.ended() || list.from.bank.resumes >= list.model.bounds.recoveries {
        return;
    }
    // A workflow that ended by itself had ended its payment: the commits that said so are lost.
    let has_ended = matches!(list.from.workflow, WorkflowState::Closed(_));
    list.benign(
        |next| {
            next.bank.attempts_uncertain |= has_ended;
            if let WorkflowState::Closed(Ok(())) = list.from.workflow {
                next.bank.mark_acceptance(SubmitProgress::Accepted);
            }
            if let Some(forward) = next.bank.resume() {
                let n = next.bank.resumes;
                run_workflow(next, n, if forward { 0 } else { n });
            }
        },
        || "the starter starts a recovery workflow".into(),
    );
}
