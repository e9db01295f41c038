//! What the workflow engine and the starter do: starts, signals, cancellations, losses of every kind.

use payment_protocol::cause::ReserveRefusal;
use payment_protocol::port::WaitOutcome;

use super::Moves;
use crate::state::{Live, Run, State, Zombie};

pub(super) fn moves(moves: &mut Moves<'_>) {
    match &moves.from.run {
        Run::NotStarted => start(moves),
        Run::Live(live) => {
            if moves.attention.inbox {
                signals(moves);
            }
            losses(moves, live);
        }
        Run::Lost => take_up(moves),
        Run::Closed(_) => {}
    }
}

fn start(moves: &mut Moves<'_>) {
    let bank = &moves.from.bank;
    let unwanted = if bank.cancel_requested {
        Some(ReserveRefusal::CustomerCancel)
    } else if bank.too_late {
        Some(ReserveRefusal::StartedTooLate)
    } else {
        None
    };
    match unwanted {
        Some(refusal) => moves.well(
            |next| {
                next.bank.refuse_unreserved(refusal);
                next.run = Run::Lost;
            },
            || format!("the starter refuses it: {refusal}"),
        ),
        None => moves.well(
            |next| {
                next.bank.mark_started();
                run(next, 0, 0);
            },
            || "the starter starts it".into(),
        ),
    }
    // It looked before the cancel came, or before `valid_until`; or it dies before it can mark the start.
    moves.may(|next| run(next, 0, 0), || "the starter starts it, unmarked".into());
}

/// Starts a workflow.
fn run(next: &mut State, n: u8, resume: u8) {
    next.run = Run::Live(Live { id: n, resume, past: Vec::new(), inbox: Vec::new() });
}

fn signals(moves: &mut Moves<'_>) {
    for (at, event) in moves.from.messages.iter().enumerate() {
        moves.well(
            |next| {
                // A decision is told again until it is carried out: the engine may lose what it was told.
                if !matches!(event, WaitOutcome::Decided(_)) {
                    next.messages.remove(at);
                }
                hear(next, event.clone());
            },
            || format!("signal: {event:?}"),
        );
        moves.fault(|next| hear(next, event.clone()), || format!("signal, to be repeated: {event:?}"));
    }
    moves.fault(|next| hear(next, WaitOutcome::CustomerCancel), || "the workflow is asked to cancel".into());
}

/// A repeat of what waits already says nothing new.
fn hear(next: &mut State, event: WaitOutcome) {
    if let Run::Live(live) = &mut next.run
        && !live.inbox.contains(&event)
    {
        live.inbox.push(event);
    }
}

fn losses(moves: &mut Moves<'_>, live: &Live) {
    moves.fault(
        |next| {
            abandon(next);
            next.run = Run::Lost;
        },
        || "the workflow is terminated".into(),
    );
    for kept in 0..live.past.len() {
        // A new run with the beginning of the old one's history.
        moves.fault(
            |next| {
                abandon(next);
                // Another id than any run has had: each loss costs a fault.
                let id = 100 + next.left.faults;
                if let Run::Live(live) = &mut next.run {
                    live.past.truncate(kept);
                    live.id = id;
                }
            },
            || format!("the workflow is reset to its first {kept} answers"),
        );
        // The same run, as an older backup of the engine knows it.
        moves.fault(
            |next| {
                abandon(next);
                if let Run::Live(live) = &mut next.run {
                    live.past.truncate(kept);
                    live.inbox.clear();
                }
            },
            || format!("the engine is restored with the first {kept} answers"),
        );
    }
}

/// What an activity was doing goes on without anybody waiting.
pub(super) fn abandon(next: &mut State) {
    if let Some(attempt) = next.current.take() {
        next.zombies.push(Zombie::Attempt(attempt));
    }
}

fn take_up(moves: &mut Moves<'_>) {
    if moves.from.bank.ended() || moves.from.bank.resumes >= moves.model.bounds.resumes {
        return;
    }
    moves.well(
        |next| {
            if let Some(from_the_top) = next.bank.resume() {
                let n = next.bank.resumes;
                run(next, n, if from_the_top { 0 } else { n });
            }
        },
        || "the starter takes it up again".into(),
    );
}
