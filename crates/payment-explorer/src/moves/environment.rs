//! What others do: the switch by itself, the clock, callbacks, the customer, the account, people.

use payment_protocol::cause::ReserveRefusal;
use payment_protocol::decision::Decision;
use payment_protocol::facts::{FinalStatus, ReserveRecord};
use payment_protocol::port::WaitOutcome;
use payment_protocol::report::SettledReport;

use super::Moves;
use crate::bank::{Exception, OpenDecision};
use crate::model::Model;
use crate::state::State;
use crate::switch::Status;

pub(super) fn moves(moves: &mut Moves<'_>) {
    switch(moves);
    if moves.attention.clock {
        clock(moves);
    }
    if moves.model.profile().has_callback {
        callbacks(moves);
    }
    if moves.attention.customer {
        customer(moves);
    }
    if moves.attention.account {
        account(moves);
    }
    people(moves);
}

fn switch(moves: &mut Moves<'_>) {
    let Some(pending) = moves.from.switch.transfers.iter().position(|status| *status == Status::Pending)
    else {
        return;
    };
    for (status, told) in [(Status::Settled, "the switch settles"), (Status::Rejected, "the switch rejects")]
    {
        moves.well(|next| next.switch.transfers[pending] = status, || told.into());
    }
}

fn clock(moves: &mut Moves<'_>) {
    if moves.from.bank.attempts == 0 {
        return;
    }
    match moves.from.now.next() {
        Some(now) => moves.well(|next| next.now = now, || format!("the clock comes to {now:?}")),
        None => moves.well(
            |next| {
                next.switch.retention_expired = true;
                next.switch.tombstone = false;
                next.switch.stuck_not_found = false;
            },
            || "the switch forgets its references".into(),
        ),
    }
}

/// None of them is a move that can be relied on: a payment must be able to end though no callback ever comes.
fn callbacks(moves: &mut Moves<'_>) {
    let (model, bank, switch) = (moves.model, &moves.from.bank, &moves.from.switch);
    let left = switch.transfers.iter().any(|status| matches!(status, Status::Settled | Status::Recalled));
    // A SUCCESS after an attempt is the switch's commitment, so a false one is told only where none can be.
    let false_success = !left
        && (bank.attempts == 0
            || bank.final_status == Some(FinalStatus::Void)
            || (bank.ended() && !switch.settled()));
    let rejected = switch.transfers.contains(&Status::Rejected);
    let report = &model.report;
    if left && !bank.success_stored {
        moves.may(|next| success(next, model, report), || "callback SUCCESS".into());
    }
    if false_success && !bank.success_stored {
        moves.word(|next| success(next, model, report), || "callback SUCCESS, false".into());
    }
    if !bank.failure_stored {
        if rejected {
            moves.may(failure, || "callback FAILURE".into());
        } else {
            moves.word(failure, || "callback FAILURE, false".into());
        }
    }
    let amount_mismatch = SettledReport { amount_minor: 1, ..report.clone() };
    let callback_from_other_switch =
        SettledReport { switch: model.callback_from_other_switch.clone(), ..report.clone() };
    if !bank.exceptions.contain(Exception::ConfirmationMismatch) {
        moves.word(
            |next| success(next, model, &amount_mismatch),
            || "callback SUCCESS of another amount".into(),
        );
    }
    if !bank.exceptions.contain(Exception::CallbackFromOtherSwitch) {
        moves.word(
            |next| success(next, model, &callback_from_other_switch),
            || "callback SUCCESS of another switch".into(),
        );
    }
}

fn success(next: &mut State, model: &Model, report: &SettledReport) {
    if next.bank.store_success(model.payment(), report) {
        next.message(WaitOutcome::SuccessReported);
    }
}

fn failure(next: &mut State) {
    if next.bank.store_failure() {
        next.message(WaitOutcome::FailureReported { reason: "failure".into() });
    }
}

fn customer(moves: &mut Moves<'_>) {
    if moves.from.left.customer_cancel && !moves.from.bank.ended() {
        moves.may(
            |next| {
                next.left.customer_cancel = false;
                next.bank.cancel_requested = true;
                next.message(WaitOutcome::CustomerCancel);
            },
            || "the customer cancels".into(),
        );
    }
    if moves.from.left.lateness && moves.from.bank.reserve.is_none() {
        moves.may(
            |next| {
                next.left.lateness = false;
                next.bank.too_late = true;
            },
            || "valid_until passes".into(),
        );
    }
}

fn account(moves: &mut Moves<'_>) {
    let bank = &moves.from.bank;
    if bank.frozen {
        moves.well(|next| next.bank.frozen = false, || "the freeze is lifted".into());
    } else if moves.from.left.freeze && !bank.ended() {
        moves.may(
            |next| {
                next.left.freeze = false;
                next.bank.frozen = true;
            },
            || "the account is frozen".into(),
        );
    }
    let refused = ReserveRecord::Refused(ReserveRefusal::InsufficientFunds);
    if !bank.funds && bank.reserve == Some(refused) {
        moves.may(|next| next.bank.funds = true, || "funds arrive".into());
    }
}

fn people(moves: &mut Moves<'_>) {
    let bank = &moves.from.bank;
    let decided = bank.decision.as_ref().is_none_or(|decision| decision.came.is_some());
    // The workflow's validator takes a decision only while it stands.
    let reason = moves.attention.stands.filter(|_| !bank.ended() && decided);
    if let (Some(reason), Some(left)) = (reason, moves.from.left.decisions.checked_sub(1)) {
        let id = moves.model.bounds.decisions - moves.from.left.decisions;
        let Some(decision_id) = Model::decision_id(id) else { return };
        for action in reason.allowed() {
            moves.well(
                |next| {
                    next.left.decisions = left;
                    next.bank.decision = Some(OpenDecision { id, action: *action, came: None });
                    next.message(WaitOutcome::Decided(Decision {
                        decision_id: decision_id.clone(),
                        action: *action,
                    }));
                },
                || format!("people decide: {action}"),
            );
        }
    }
    let undebited = bank.journal.debit + bank.journal.late_debit + bank.journal.claim == 0;
    if bank.ended()
        && undebited
        && moves.from.switch.settled()
        && bank.exceptions.contain(Exception::LateConfirmation)
    {
        moves.well(|next| next.bank.late_debit(), || "people correct: late debit".into());
    }
}
