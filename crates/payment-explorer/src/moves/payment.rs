//! The payment's present step: a step of our ledger, an attempt at the switch, or a wait; and what is left of
//! steps that nobody waits for any more.

use payment_protocol::cancel::CancelAttemptOutcome;
use payment_protocol::poll::PollOutcome;
use payment_protocol::port::{
    AccountLockOutcome, CancelOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome, WaitOutcome,
};
use payment_protocol::recall::RecallAttemptOutcome;
use payment_protocol::submit::SubmitAttemptOutcome as Tried;

use super::Moves;
use super::doors::{Way, ways};
use super::engine::abandon;
use crate::attempt::{Job, Outcome};
use crate::bank::{self, Bank};
use crate::model::Model;
use crate::run::{Answer, Step};
use crate::script::Came;
use crate::state::{AttemptInFlight, ClosedWith, Live, Message, Run, State, Zombie};

pub(super) fn moves(moves: &mut Moves<'_>) {
    if let Run::Live(live) = &moves.from.run
        && let Came::Asks(step) = &*moves.model.run_at(live.resume, &live.past)
    {
        present_step(moves, live, step);
    }
    zombies(moves);
    wire(moves);
}

fn present_step(moves: &mut Moves<'_>, live: &Live, step: &Step) {
    match step {
        Step::Submit => {
            attempt(moves, live, step, Job::Submit);
            answer_with(moves, step, Answer::Submit(SubmitOutcome::Unknown), true, "submit's budget is over");
        }
        Step::Cancel(cause) => {
            if let Some(at) = live.inbox.iter().position(|event| *event == WaitOutcome::SuccessReported) {
                let answer = Answer::Cancel(CancelOutcome::SuccessReported);
                hear_instead(moves, step, at, answer);
            } else {
                attempt(moves, live, step, Job::Cancel(cause.clone()));
            }
        }
        Step::Recall => attempt(moves, live, step, Job::Recall),
        Step::ApplyDecision(decision, reason) => {
            attempt(moves, live, step, Job::CarryOut(decision.clone(), *reason));
        }
        Step::WaitWithinSla | Step::WaitUntilEvent => wait(moves, live, step),
        Step::Lock => lock(moves, live),
        _ => ledger_step(moves, live, step),
    }
}

/// Gives the payment its answer, and runs it to its next question.
fn answer(model: &Model, next: &mut State, step: &Step, answer: Answer) {
    next.current = None;
    let Run::Live(live) = &mut next.run else { return };
    live.past.push(model.answered(step.clone(), answer));
    live.past = model.place(live.resume, std::mem::take(&mut live.past));
    if let Came::Ended(result) = &*model.run_at(live.resume, &live.past) {
        next.run = Run::Closed(match result {
            Ok(()) => Ok(()),
            Err(error) => Err(ClosedWith { end: error.end(), code: error.code() }),
        });
        next.messages.clear();
    }
}

/// The payment gets an answer without the attempt that is under way, which goes on by itself.
fn answer_with(moves: &mut Moves<'_>, step: &Step, said: Answer, fault: bool, told: &'static str) {
    let model = moves.model;
    let change = |next: &mut State| {
        abandon(next);
        answer(model, next, step, said);
    };
    if fault { moves.fault(change, || told.into()) } else { moves.well(change, || told.into()) }
}

/// The payment hears what waits in its inbox.
fn hear_instead(moves: &mut Moves<'_>, step: &Step, at: usize, said: Answer) {
    let model = moves.model;
    let told = format!("the payment hears {said:?}");
    moves.well(
        |next| {
            if let Run::Live(live) = &mut next.run {
                live.inbox.remove(at);
            }
            abandon(next);
            answer(model, next, step, said);
        },
        || told,
    );
}

fn wait(moves: &mut Moves<'_>, live: &Live, step: &Step) {
    if let Some(first) = live.inbox.first() {
        hear_instead(moves, step, 0, Answer::Wait(first.clone()));
        return;
    }
    if *step == Step::WaitWithinSla {
        answer_with(moves, step, Answer::Wait(WaitOutcome::SlaExpired), false, "the SLA passes");
    }
    if moves.model.profile().must_be_polled() {
        attempt(moves, live, step, Job::Poll);
    }
}

fn lock(moves: &mut Moves<'_>, live: &Live) {
    if let Some(at) = live.inbox.iter().position(|event| *event == WaitOutcome::CustomerCancel) {
        hear_instead(moves, &Step::Lock, at, Answer::Lock(AccountLockOutcome::CustomerCancel));
    }
    answer_with(moves, &Step::Lock, Answer::Lock(AccountLockOutcome::Held), false, "the account is locked");
    let not_granted = Answer::Lock(AccountLockOutcome::NotGranted);
    answer_with(moves, &Step::Lock, not_granted, true, "the account stays locked by another payment");
}

/// A step of our ledger: one transaction.
fn ledger_step(moves: &mut Moves<'_>, live: &Live, step: &Step) {
    let model = moves.model;
    moves.well(
        |next| {
            let said = transact(&mut next.bank, step, live.id);
            answer(model, next, step, said);
        },
        || format!("ledger: {step:?}"),
    );
    if !writes(step) {
        return;
    }
    moves.fault(
        |next| {
            transact(&mut next.bank, step, live.id);
        },
        || format!("ledger: {step:?} is done, the worker dies before it can say so"),
    );
    moves.fault(
        |next| next.zombies.push(Zombie::Ledger(step.clone(), live.id)),
        || format!("ledger: {step:?} hangs, and is tried again elsewhere"),
    );
    match step {
        Step::Reserve => {
            for done in [false, true] {
                moves.fault(
                    |next| {
                        if done {
                            transact(&mut next.bank, step, live.id);
                        }
                        answer(model, next, step, Answer::Reserve(ReserveOutcome::Unknown));
                    },
                    || format!("ledger: reserve has no outcome; done: {done}"),
                );
            }
        }
        Step::Release(_) => moves.fault(
            |next| {
                let failed = ReleaseOutcome::Failed { detail: "no".into() };
                answer(model, next, step, Answer::Release(failed));
            },
            || "ledger: release fails for good".into(),
        ),
        _ => {}
    }
}

fn writes(step: &Step) -> bool {
    matches!(step, Step::Reserve | Step::Fence | Step::Debit | Step::Release(_) | Step::NeedsOperator(_))
}

/// What the ledger does for a step.
fn transact(bank: &mut Bank, step: &Step, run: bank::Run) -> Answer {
    match step {
        Step::Reserve => Answer::Reserve(bank.reserve(run)),
        Step::Fence => Answer::Fence(bank.fence_reserve()),
        Step::Debit => Answer::Debit(bank.debit()),
        Step::Release(cause) => Answer::Release(bank.release(cause)),
        Step::NeedsOperator(reason) => Answer::NeedsOperator(bank.needs_operator(*reason)),
        Step::Reconcile => Answer::Reconcile(bank.reconcile_submission()),
        _ => Answer::Done,
    }
}

/// One question of the attempt that is under way, or of a new one.
fn attempt(moves: &mut Moves<'_>, live: &Live, step: &Step, job: Job) {
    let model = moves.model;
    let under_way = moves.from.current.clone().unwrap_or_else(|| AttemptInFlight {
        job: model.job(job),
        run: live.id,
        past: Vec::new(),
    });
    let job = model.job_of(under_way.job);
    let Came::Asks(call) = &*model.attempt_at(under_way.job, &under_way.past) else { return };
    for Way { next: after, reply, benign, told } in ways(model, moves.from, under_way.run, &job, call) {
        let mut on = under_way.clone();
        on.past.push(model.replied(call.clone(), reply));
        let words = || format!("{}: {call:?} {told}", name(&job));
        let mut reported = after.clone();
        match &*model.attempt_at(on.job, &on.past) {
            Came::Asks(_) => reported.current = Some(on),
            Came::Ended(outcome) => conclude(model, &mut reported, step, outcome),
            Came::Strayed => return,
        }
        moves.push(reported, benign, words);
        // The worker dies right after: what was done stays done, what was to come does not.
        if let Some(faults) = after.left.faults.checked_sub(1)
            && (&after.bank, &after.switch, &after.wire)
                != (&moves.from.bank, &moves.from.switch, &moves.from.wire)
        {
            let mut dead = after;
            dead.left.faults = faults;
            dead.current = None;
            moves.push(dead, false, || format!("{}, and the worker dies", words()));
        }
    }
    // The worker stands still before this question, and the server starts another attempt.
    moves.fault(
        |next| {
            next.current = None;
            next.zombies.push(Zombie::Attempt(under_way.clone()));
        },
        || format!("{} hangs before {call:?}, and is tried again elsewhere", name(&job)),
    );
}

fn name(job: &Job) -> &'static str {
    match job {
        Job::Submit => "submit",
        Job::Cancel(_) => "ask to cancel",
        Job::Recall => "recall",
        Job::Poll => "poll",
        Job::CarryOut(..) => "carry out",
    }
}

/// What the payment is told of an attempt; nothing where it is to be repeated.
fn conclude(model: &Model, next: &mut State, step: &Step, outcome: &Outcome) {
    let told = match outcome {
        Outcome::Submit(Tried::Accepted) => Answer::Submit(SubmitOutcome::Accepted),
        Outcome::Submit(Tried::Refused { reason }) => {
            Answer::Submit(SubmitOutcome::Refused { reason: reason.clone() })
        }
        Outcome::Submit(Tried::Settled) => Answer::Submit(SubmitOutcome::Settled),
        Outcome::Submit(Tried::NotSent(reason)) => Answer::Submit(SubmitOutcome::NotSent(*reason)),
        Outcome::Cancel(CancelAttemptOutcome::Void) => Answer::Cancel(CancelOutcome::Void),
        Outcome::Cancel(CancelAttemptOutcome::Settled) => Answer::Cancel(CancelOutcome::Settled),
        Outcome::Cancel(CancelAttemptOutcome::Differs) => Answer::Cancel(CancelOutcome::Differs),
        Outcome::Cancel(CancelAttemptOutcome::Undecidable(reason)) => {
            Answer::Cancel(CancelOutcome::Undecidable(*reason))
        }
        Outcome::Cancel(CancelAttemptOutcome::Ended(end)) => Answer::Cancel(CancelOutcome::Ended(*end)),
        Outcome::Recall(RecallAttemptOutcome::Decided(recalled)) => Answer::Recall(*recalled),
        Outcome::Poll(PollOutcome::SuccessReported) => Answer::Wait(WaitOutcome::SuccessReported),
        // Who stands before a person knows that already.
        Outcome::Poll(PollOutcome::FailureReported { reason }) if *step == Step::WaitWithinSla => {
            Answer::Wait(WaitOutcome::FailureReported { reason: reason.clone() })
        }
        Outcome::ApplyDecision(came) => Answer::ApplyDecision(came.clone()),
        Outcome::Submit(Tried::Unknown { .. })
        | Outcome::Cancel(CancelAttemptOutcome::Again { .. })
        | Outcome::Recall(RecallAttemptOutcome::Again { .. })
        | Outcome::Poll(_) => {
            next.current = None;
            return;
        }
    };
    answer(model, next, step, told);
}

/// What hung goes on at any later moment; nobody hears what came of it.
fn zombies(moves: &mut Moves<'_>) {
    let model = moves.model;
    for (at, zombie) in moves.from.zombies.iter().enumerate() {
        match zombie {
            Zombie::Ledger(step, run) => moves.well(
                |next| {
                    next.zombies.remove(at);
                    transact(&mut next.bank, step, *run);
                },
                || format!("late: ledger {step:?}"),
            ),
            Zombie::Attempt(attempt) => {
                let job = model.job_of(attempt.job);
                let Came::Asks(call) = &*model.attempt_at(attempt.job, &attempt.past) else { continue };
                for Way { mut next, reply, benign, told } in ways(model, moves.from, attempt.run, &job, call)
                {
                    let mut on = attempt.clone();
                    on.past.push(model.replied(call.clone(), reply));
                    next.zombies.remove(at);
                    if let Came::Asks(_) = &*model.attempt_at(on.job, &on.past) {
                        next.zombies.push(Zombie::Attempt(on));
                    }
                    moves.push(next, benign, || format!("late: {}: {call:?} {told}", name(&job)));
                }
            }
        }
    }
}

/// What is on its way arrives at any later moment, or never.
fn wire(moves: &mut Moves<'_>) {
    let model = moves.model;
    for (at, message) in moves.from.wire.iter().enumerate() {
        match message {
            Message::Send => {
                for take in moves.from.switch.takes(model.profile(), moves.from.now) {
                    moves.well(
                        |next| {
                            next.wire.remove(at);
                            next.switch.submit(model.profile(), take);
                        },
                        || format!("late: the submit arrives: {take:?}"),
                    );
                }
            }
            Message::Cancel => moves.well(
                |next| {
                    next.wire.remove(at);
                    next.switch.cancel(model.profile());
                },
                || "late: the cancel arrives".into(),
            ),
            Message::Recall => {
                for gives in [true, false] {
                    moves.well(
                        |next| {
                            next.wire.remove(at);
                            next.switch.recall(gives);
                        },
                        || format!("late: the recall arrives; gives back: {gives}"),
                    );
                }
            }
        }
    }
}
