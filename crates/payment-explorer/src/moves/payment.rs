//! The workflow's present call: a step of our ledger, an attempt at the switch, or a wait.

use payment_protocol::cancel::CancelAttemptOutcome;
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::poll::Awaited;
use payment_protocol::port::{
    AccountLockOutcome, CancelOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome, WaitOutcome,
};
use payment_protocol::recall::RecallAttemptOutcome;
use payment_protocol::rules::AttemptRuling;
use payment_protocol::submit::SubmitAttemptOutcome;
use payment_protocol::{PaymentState, SwitchProfile};

use super::answers::{CallResult, call_results};
use super::collector::MoveList;
use super::engine::abandon;
use super::read_back;
use crate::attempt::{ActiveAttempt, Activity, AttemptCall, AttemptOutcome, AttemptReply};
use crate::bank::{Bank, RunNumber};
use crate::model::Model;
use crate::replay::Progress;
use crate::state::{RunningWorkflow, State, WorkflowState, Zombie};
use crate::words::{self, CallAndResult};
use crate::workflow::{PortCall, PortReply, WorkflowError};

pub(super) fn add(list: &mut MoveList<'_>) {
    if let WorkflowState::Running(running) = &list.from.workflow
        && let Progress::Awaits(call) = &*list.model.workflow_at(running.resume, &running.history)
    {
        present_call(list, running, call);
    }
}

fn present_call(list: &mut MoveList<'_>, running: &RunningWorkflow, call: &PortCall) {
    match call {
        PortCall::Submit => {
            // At a silent switch the attempts after the first one change nothing but their number.
            let silent = list.from.switch.silent;
            if !silent || list.from.current.is_some() || list.from.bank.attempts == 0 {
                attempt(list, running, call, Activity::Submit);
            }
            let unknown = PortReply::Submit(SubmitOutcome::Unknown);
            let reads_back = list.model.profile().needs_account_lock();
            let undecided = silent || reads_back && read_back::is_undecided(list.from);
            reply_early(list, call, unknown, !undecided, "submit's time budget is used up");
        }
        PortCall::Cancel(cause, submit) => {
            let success = running.inbox.iter().position(|event| *event == WaitOutcome::SuccessReported);
            if let Some(at) = success {
                let reply = PortReply::Cancel(CancelOutcome::SuccessReported);
                reply_from_inbox(list, call, at, reply);
            } else {
                attempt(list, running, call, Activity::Cancel(cause.clone(), *submit));
            }
        }
        PortCall::Recall => attempt(list, running, call, Activity::Recall),
        PortCall::Debit if list.model.confirms_by_query() => attempt(list, running, call, Activity::Debit),
        PortCall::ApplyDecision(decision, reason, submit) => {
            attempt(list, running, call, Activity::ApplyDecision(decision.clone(), *reason, *submit));
        }
        PortCall::WaitWithinSla | PortCall::WaitUntilEvent => wait(list, running, call),
        PortCall::Lock => lock(list, running),
        PortCall::Reserve => {
            ledger_step(list, running, call);
            reserve_with_attempt(list, running);
        }
        _ => ledger_step(list, running, call),
    }
}

/// Gives the workflow its reply, and runs it to its next call.
fn reply_to(model: &Model, next: &mut State, call: &PortCall, reply: PortReply) {
    next.current = None;
    let WorkflowState::Running(running) = &mut next.workflow else { return };
    running.history.push(model.workflow_exchange(call.clone(), reply));
    running.history = model.canonical_history(running.resume, std::mem::take(&mut running.history));
    if let Progress::Completed(result) = &*model.workflow_at(running.resume, &running.history) {
        next.workflow = WorkflowState::Closed(match result {
            Ok(()) => Ok(()),
            Err(error) => Err(WorkflowError::from(error)),
        });
        // A decision whose effect was lost is delivered to the recovery workflow; a run that goes on is woken by what ended the
        // payment.
        let none_runs = next.workflows().all(|workflow| !matches!(workflow, WorkflowState::Running(_)));
        if next.bank.ended() && none_runs {
            next.messages.clear();
        }
    }
}

/// Gives the workflow a reply before the running attempt completes; the attempt becomes a zombie.
fn reply_early(
    list: &mut MoveList<'_>,
    call: &PortCall,
    reply: PortReply,
    fault: bool,
    description: &'static str,
) {
    let model = list.model;
    let change = |next: &mut State| {
        abandon(next);
        reply_to(model, next, call, reply);
    };
    if fault { list.fault(change, || description.into()) } else { list.benign(change, || description.into()) }
}

/// The workflow handles the signal at `at` in its inbox.
fn reply_from_inbox(list: &mut MoveList<'_>, call: &PortCall, at: usize, reply: PortReply) {
    let model = list.model;
    let handled = reply.clone();
    list.benign(
        |next| {
            if let WorkflowState::Running(running) = &mut next.workflow {
                running.inbox.remove(at);
            }
            abandon(next);
            reply_to(model, next, call, reply);
        },
        || format!("the workflow handles: {}", words::handled(&handled)),
    );
}

fn wait(list: &mut MoveList<'_>, running: &RunningWorkflow, call: &PortCall) {
    if let Some(first) = running.inbox.first() {
        reply_from_inbox(list, call, 0, PortReply::Wait(first.clone()));
        return;
    }
    if *call == PortCall::WaitWithinSla {
        reply_early(list, call, PortReply::Wait(WaitOutcome::SlaExpired), false, "the SLA expires");
    } else if list.from.bank.state != PaymentState::NeedsOperator {
        // While the ledger has the call, another one changes nothing.
        let call_due = PortReply::Wait(WaitOutcome::OperatorCallDue);
        reply_early(list, call, call_due, false, "an operator is called again");
    }
    if list.model.is_polled(&list.from.bank, call) {
        attempt(list, running, call, Activity::Poll);
    }
}

fn lock(list: &mut MoveList<'_>, running: &RunningWorkflow) {
    let call = &PortCall::Lock;
    if let Some(at) = running.inbox.iter().position(|event| *event == WaitOutcome::CustomerCancel) {
        reply_from_inbox(list, call, at, PortReply::Lock(AccountLockOutcome::CustomerCancel));
    }
    let held = PortReply::Lock(AccountLockOutcome::Held);
    reply_early(list, call, held, false, "the account is locked");
    let not_granted = PortReply::Lock(AccountLockOutcome::NotGranted);
    reply_early(list, call, not_granted, true, "another payment keeps the account locked");
}

/// A step of our ledger: one transaction.
fn ledger_step(list: &mut MoveList<'_>, running: &RunningWorkflow, call: &PortCall) {
    let (model, run) = (list.model, running.run);
    list.benign(
        |next| {
            let reply = ledger_transaction(model.profile(), &mut next.bank, call, run);
            reply_to(model, next, call, reply);
        },
        || format!("ledger: {call}"),
    );
    if !writes(call) {
        return;
    }
    if let Some(left) = list.from.budget.lost_commits.checked_sub(1) {
        let mut next = list.from.clone();
        next.budget.lost_commits = left;
        let reply = ledger_transaction(model.profile(), &mut next.bank, call, run);
        if next.bank != list.from.bank {
            next.bank = list.from.bank.clone();
            reply_to(model, &mut next, call, reply);
            list.push(next, false, || format!("ledger: {call} commits, and the commit is lost"));
        }
    }
    list.fault(
        |next| {
            ledger_transaction(model.profile(), &mut next.bank, call, run);
        },
        || format!("ledger: {call} commits, and the worker crashes before it can reply"),
    );
    list.fault(
        |next| next.zombies.push(Zombie::Ledger(call.clone(), run)),
        || format!("ledger: {call} hangs, and is retried elsewhere"),
    );
    match call {
        PortCall::Reserve => {
            for committed in [false, true] {
                list.fault(
                    |next| {
                        if committed {
                            ledger_transaction(model.profile(), &mut next.bank, call, run);
                        }
                        reply_to(model, next, call, PortReply::Reserve(ReserveOutcome::Unknown));
                    },
                    || format!("ledger: the outcome of reserve is unknown; committed: {committed}"),
                );
            }
        }
        PortCall::Release(_) => list.fault(
            |next| {
                let failed = ReleaseOutcome::Failed { detail: "no".into() };
                reply_to(model, next, call, PortReply::Release(failed));
            },
            || "ledger: release fails permanently".into(),
        ),
        _ => {}
    }
}

/// Reserve and the first submit attempt in one transaction of our ledger; the transfer is sent next. Where a commit may be lost the
/// worker does not do this; the walks with lost commits do.
fn reserve_with_attempt(list: &mut MoveList<'_>, running: &RunningWorkflow) {
    let (model, run) = (list.model, running.run);
    if model.profile().forbids_second_attempt() {
        return;
    }
    let mut recorded = list.from.clone();
    if !recorded.bank.reserve_with_attempt(run, model.payment()) {
        return;
    }
    let mut next = recorded.clone();
    next.tried_to_send = true;
    reply_to(model, &mut next, &PortCall::Reserve, PortReply::Reserve(ReserveOutcome::Held));
    let ruling = AttemptReply::RecordAttempt(AttemptRuling::Send(1));
    next.current = Some(ActiveAttempt {
        activity: model.intern_activity(Activity::FirstSubmit),
        run,
        history: vec![model.attempt_exchange(AttemptCall::RecordAttempt, ruling)],
    });
    if let Some(left) = next.budget.lost_commits.checked_sub(1) {
        let mut lost = next.clone();
        lost.budget.lost_commits = left;
        lost.bank = list.from.bank.clone();
        sent_without_a_trace(list, &lost, running);
        list.push(lost, false, || {
            "ledger: reserve and the first attempt commit, and the commit is lost".into()
        });
    }
    list.push(next, true, || "ledger: reserve, and record the first attempt".into());
    if let Some(left) = recorded.budget.faults.checked_sub(1) {
        recorded.budget.faults = left;
        list.push(recorded, false, || {
            "ledger: reserve and the first attempt commit, and the worker crashes".into()
        });
    }
}

/// The failover that loses the commit also ends the worker, which has sent the transfer or is about to: neither our books nor Temporal
/// know of it, and reserve is made again. Not where that one may be refused, which ends the payment: see
/// [`crate::tiers::NOT_WALKED`].
fn sent_without_a_trace(list: &mut MoveList<'_>, lost: &State, running: &RunningWorkflow) {
    if list.from.budget.events > 0 {
        return;
    }
    let mut next = lost.clone();
    abandon(&mut next);
    next.tried_to_send = list.from.tried_to_send;
    next.workflow = WorkflowState::Running(running.clone());
    list.push(next, false, || {
        "ledger: reserve and the first attempt commit, the commit is lost, and so is the reply of the worker, which goes on".into()
    });
}

fn writes(call: &PortCall) -> bool {
    matches!(
        call,
        PortCall::Reserve
            | PortCall::Fence
            | PortCall::Debit
            | PortCall::Release(_)
            | PortCall::NeedsOperator(_)
    )
}

/// The ledger's transaction for a call.
pub(super) fn ledger_transaction(
    profile: &SwitchProfile,
    bank: &mut Bank,
    call: &PortCall,
    run: RunNumber,
) -> PortReply {
    match call {
        PortCall::Reserve => PortReply::Reserve(bank.reserve(run)),
        PortCall::Fence => PortReply::Fence(bank.fence_reserve()),
        PortCall::Debit => PortReply::Debit(bank.debit(profile)),
        PortCall::Release(cause) => PortReply::Release(bank.release(cause)),
        PortCall::NeedsOperator(reason) => PortReply::NeedsOperator(bank.needs_operator(*reason)),
        PortCall::Reconcile => PortReply::Reconcile(bank.reconcile_submission()),
        _ => PortReply::Done,
    }
}

/// One call of the running attempt, or of a new one.
fn attempt(list: &mut MoveList<'_>, running: &RunningWorkflow, port_call: &PortCall, activity: Activity) {
    let model = list.model;
    let active = list.from.current.clone().unwrap_or_else(|| ActiveAttempt {
        activity: model.intern_activity(activity),
        run: running.run,
        history: Vec::new(),
    });
    let activity = model.activity(active.activity);
    let Progress::Awaits(call) = &*model.attempt_at(active.activity, &active.history) else { return };
    for result in call_results(model, list.from, active.run, &activity, call) {
        let CallResult { next: after, reply, benign, description } = result;
        let mut continued = active.clone();
        continued.history.push(model.attempt_exchange(call.clone(), reply));
        let describe = || format!("{}: {}", activity_name(&activity), CallAndResult(call, description));
        let mut next = after.clone();
        match &*model.attempt_at(continued.activity, &continued.history) {
            Progress::Awaits(_) => next.current = Some(continued),
            Progress::Completed(outcome) => complete(model, &mut next, port_call, outcome),
            Progress::Diverged => return,
        }
        list.push(next, benign, describe);
        // The worker crashes right after the call: the call's effect stays, and no further call follows.
        if let Some(faults) = after.budget.faults.checked_sub(1)
            && (&after.bank, &after.switch, &after.in_transit)
                != (&list.from.bank, &list.from.switch, &list.from.in_transit)
        {
            let mut crashed = after;
            crashed.budget.faults = faults;
            crashed.current = None;
            list.push(crashed, false, || format!("{}, and the worker crashes", describe()));
        }
    }
    // The worker hangs before this call, and Temporal starts another attempt.
    list.fault(
        |next| {
            next.current = None;
            next.zombies.push(Zombie::Attempt(active.clone()));
        },
        || format!("{} hangs before it can {call}, and is retried elsewhere", activity_name(&activity)),
    );
}

pub(super) fn activity_name(activity: &Activity) -> &'static str {
    match activity {
        Activity::Submit => "submit",
        Activity::FirstSubmit => "first submit",
        Activity::Cancel(..) => "cancel",
        Activity::Recall => "recall",
        Activity::Poll => "poll",
        Activity::Debit => "debit",
        Activity::ApplyDecision(..) => "apply decision",
    }
}

/// What the payment that waits by this call awaits.
fn awaited(call: &PortCall, bank: &Bank) -> Awaited {
    match (call, bank.operator_reason) {
        (PortCall::WaitUntilEvent, Some(reason)) => Awaited::with_operator(reason),
        (PortCall::WaitUntilEvent, None) => Awaited::FinalStatus,
        _ => Awaited::Confirmation,
    }
}

/// The workflow gets the outcome of an attempt; an undecided attempt is repeated instead.
fn complete(model: &Model, next: &mut State, call: &PortCall, outcome: &AttemptOutcome) {
    let reply = match outcome {
        AttemptOutcome::Submit(SubmitAttemptOutcome::Accepted) => PortReply::Submit(SubmitOutcome::Accepted),
        AttemptOutcome::Submit(SubmitAttemptOutcome::Refused { reason }) => {
            PortReply::Submit(SubmitOutcome::Refused { reason: reason.clone() })
        }
        AttemptOutcome::Submit(SubmitAttemptOutcome::Settled) => PortReply::Submit(SubmitOutcome::Settled),
        AttemptOutcome::Submit(SubmitAttemptOutcome::NotSent(reason)) => {
            PortReply::Submit(SubmitOutcome::NotSent(*reason))
        }
        AttemptOutcome::Cancel(CancelAttemptOutcome::Void) => PortReply::Cancel(CancelOutcome::Void),
        AttemptOutcome::Cancel(CancelAttemptOutcome::Settled) => PortReply::Cancel(CancelOutcome::Settled),
        AttemptOutcome::Cancel(CancelAttemptOutcome::Differs) => PortReply::Cancel(CancelOutcome::Differs),
        AttemptOutcome::Cancel(CancelAttemptOutcome::Undecidable(reason)) => {
            PortReply::Cancel(CancelOutcome::Undecidable(*reason))
        }
        AttemptOutcome::Cancel(CancelAttemptOutcome::Ended(end)) => {
            PortReply::Cancel(CancelOutcome::Ended(*end))
        }
        AttemptOutcome::Recall(RecallAttemptOutcome::Decided(recalled)) => PortReply::Recall(*recalled),
        AttemptOutcome::Poll(polled) => match polled.wait_outcome(awaited(call, &next.bank)) {
            Some(outcome) => PortReply::Wait(outcome),
            None => {
                next.current = None;
                return;
            }
        },
        AttemptOutcome::Debit(outcome) => PortReply::Debit(outcome.clone()),
        AttemptOutcome::ApplyDecision(outcome) => PortReply::ApplyDecision(outcome.clone()),
        AttemptOutcome::Submit(SubmitAttemptOutcome::Unknown { .. })
        | AttemptOutcome::Cancel(CancelAttemptOutcome::Retry { .. })
        | AttemptOutcome::Recall(RecallAttemptOutcome::Retry { .. }) => {
            next.current = None;
            return;
        }
    };
    reply_to(model, next, call, reply);
    if let AttemptOutcome::ApplyDecision(DecisionOutcome::Refused { .. } | DecisionOutcome::RetryCancel) =
        outcome
    {
        next.allow_another_decision(model);
    }
}
