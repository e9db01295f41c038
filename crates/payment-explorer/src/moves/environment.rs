//! The moves of others: the switch by itself, the clock, callbacks, the customer, the account, operators.

use payment_protocol::action::Correction;
use payment_protocol::cause::ReserveRefusal;
use payment_protocol::decision::Decision;
use payment_protocol::drift::{PaymentEvidence, Tolerance, find_drift};
use payment_protocol::facts::{FinalStatus, ReserveRecord};
use payment_protocol::port::WaitOutcome;
use payment_protocol::reject::{Reject, RejectMeaning};
use payment_protocol::report::SettledReport;

use super::collector::MoveList;
use crate::bank::{Exception, OpenDecision};
use crate::model::Model;
use crate::state::State;
use crate::switch::{ClockPhase, TransferStatus};

pub(super) fn add(list: &mut MoveList<'_>) {
    switch(list);
    if list.observation.clock {
        clock(list);
    }
    if list.model.profile().has_callback {
        callbacks(list);
    }
    if list.observation.customer {
        customer(list);
    }
    if list.observation.account {
        account(list);
    }
    restore(list);
    failover(list);
    decisions(list);
    corrections(list);
    reconciliation(list);
}

fn switch(list: &mut MoveList<'_>) {
    if let Some(settled) =
        list.from.switch.transfers.iter().position(|status| *status == TransferStatus::Settled)
    {
        list.switch_fault(
            |next| next.switch.transfers[settled] = TransferStatus::Returned,
            || "the receiving bank returns the money".into(),
        );
        list.switch_fault(
            |next| {
                next.switch.transfers[settled] = TransferStatus::Returned;
                next.switch.return_sent = true;
            },
            || "the receiving bank returns the money by a message of its own".into(),
        );
        list.switch_fault(
            |next| {
                next.switch.transfers[settled] = TransferStatus::Returned;
                next.switch.returned_other_amount = true;
            },
            || "the receiving bank returns another amount".into(),
        );
    }
    let transfers = &list.from.switch.transfers;
    if !list.from.switch.silent {
        list.switch_fault(|next| next.switch.silent = true, || "the switch is silent from now on".into());
    }
    // A switch that forgets what it never accepted on our record looks like one that never received it.
    if list.from.bank.accepted && !list.from.switch.forgot {
        list.switch_fault(
            |next| next.switch.forgot = true,
            || "the switch fails over to a copy without the transfer, which goes on".into(),
        );
    }
    let Some(pending) = transfers.iter().position(|status| *status == TransferStatus::Pending) else {
        return;
    };
    if list.from.switch.stuck {
        return;
    }
    // A rail whose statement is complete has decided.
    if list.model.statement_closes().is_none() {
        list.switch_fault(|next| next.switch.stuck = true, || "the switch never decides the transfer".into());
    }
    // The statement is complete: what is not decided by now is not settled any more.
    if list.model.statement_closes().is_some_and(|closes| list.from.clock >= closes) {
        list.benign(
            |next| next.switch.transfers[pending] = TransferStatus::Rejected,
            || "the switch's own time has ended; it rejects the transfer".into(),
        );
        return;
    }
    for (status, description) in [
        (TransferStatus::Settled, "the switch settles the transfer"),
        (TransferStatus::Rejected, "the switch rejects the transfer"),
    ] {
        list.benign(|next| next.switch.transfers[pending] = status, || description.into());
    }
}

fn clock(list: &mut MoveList<'_>) {
    if list.from.bank.attempts == 0 && !list.from.bank.attempts_uncertain {
        return;
    }
    // A closed statement has no undecided transfer.
    let closes = list.from.clock.next().is_some_and(|next| Some(next) == list.model.statement_closes());
    if closes && list.from.switch.pending() {
        return;
    }
    match list.from.clock.next() {
        Some(phase) => list.benign(|next| next.clock = phase, || format!("the clock reaches {phase}")),
        None => list.benign(
            |next| {
                next.switch.retention_expired = true;
                next.switch.tombstone = false;
                next.switch.repeated_cancel_answer = None;
            },
            || "the switch drops its references".into(),
        ),
    }
}

/// Adds the callbacks of the switch; none is benign: a payment must be able to end although no callback ever arrives.
fn callbacks(list: &mut MoveList<'_>) {
    let (model, bank, switch) = (list.model, &list.from.bank, &list.from.switch);
    if switch.silent {
        return;
    }
    let money_left = switch
        .transfers
        .iter()
        .any(|status| matches!(status, TransferStatus::Settled | TransferStatus::Returned));
    // A SUCCESS after an attempt is binding, so a false one is sent only if it cannot be a binding one, or a query must confirm it.
    let confirms = model.confirms_by_query();
    let false_success = !money_left
        && (confirms
            || bank.attempts == 0
            || bank.final_status == Some(FinalStatus::Void)
            || (bank.ended() && !switch.settled()));
    if switch.return_sent {
        let stored = |id: u8| bank.returns_stored & (1 << id) != 0;
        if !stored(0) {
            list.optional(|next| next.bank.store_return(model.payment(), 0), || "callback RETURN".into());
        }
        if !stored(1) {
            list.switch_fault(
                |next| next.bank.store_return(model.payment(), 1),
                || "callback RETURN of the same money under another id".into(),
            );
        }
    }
    let rejected = switch.transfers.contains(&TransferStatus::Rejected);
    let report = &model.report;
    let returned_report = model.returned_report(switch);
    let is_differing_return_known =
        switch.returned_other_amount && bank.exceptions.contain(Exception::ConfirmationMismatch);
    if switch.returned() && !bank.return_stored && !is_differing_return_known {
        list.optional(|next| returned(next, model, &returned_report), || "callback RETURNED".into());
    }
    if confirms && !switch.returned() && !bank.return_stored {
        list.switch_fault(|next| returned(next, model, report), || "callback RETURNED, false".into());
    }
    if money_left && !bank.success_stored {
        list.optional(|next| success(next, model, report), || "callback SUCCESS".into());
    }
    if false_success && !bank.success_stored {
        list.switch_fault(|next| success(next, model, report), || "callback SUCCESS, false".into());
    }
    let dead = model.reject(RejectMeaning::Dead);
    if rejected && !bank.failure_stored {
        list.optional(|next| failure(next, model, &dead), || "callback FAILURE".into());
    }
    if !rejected && !bank.failure_stored {
        // A rail whose rejects are final sends no such code of a living transfer, unless a query must confirm it.
        let false_reject =
            if model.profile().reject_is_final && !confirms { Reject::uncoded("failure") } else { dead };
        list.switch_fault(|next| failure(next, model, &false_reject), || "callback FAILURE, false".into());
    }
    let other_amount = SettledReport { amount_minor: 1, ..report.clone() };
    let other_switch = SettledReport { switch: model.other_switch.clone(), ..report.clone() };
    if !bank.exceptions.contain(Exception::ConfirmationMismatch) && !bank.other_amount_to_confirm {
        list.switch_fault(
            |next| success(next, model, &other_amount),
            || "callback SUCCESS with another amount".into(),
        );
    }
    if !bank.exceptions.contain(Exception::CallbackFromOtherSwitch) {
        list.switch_fault(
            |next| success(next, model, &other_switch),
            || "callback SUCCESS of another switch".into(),
        );
    }
}

fn success(next: &mut State, model: &Model, report: &SettledReport) {
    if next.bank.store_success(model.payment(), report) {
        next.store_message(WaitOutcome::SuccessReported);
    }
}

fn returned(next: &mut State, model: &Model, report: &SettledReport) {
    if next.bank.store_returned(model.payment(), report) {
        next.store_message(WaitOutcome::FinalStatusRecorded);
    }
}

fn failure(next: &mut State, model: &Model, reject: &Reject) {
    if next.bank.store_failure(model.payment(), reject) {
        next.store_message(WaitOutcome::FailureReported { reason: "failure".into() });
    }
}

fn customer(list: &mut MoveList<'_>) {
    let Some(events) = list.from.budget.events.checked_sub(1) else { return };
    if list.from.budget.customer_cancel && !list.from.bank.ended() {
        list.optional(
            |next| {
                (next.budget.events, next.budget.customer_cancel) = (events, false);
                next.bank.cancel_requested = true;
                next.store_message(WaitOutcome::CustomerCancel);
            },
            || "the customer cancels".into(),
        );
    }
    if list.from.budget.late_start && list.from.bank.reserve.is_none() {
        list.optional(
            |next| {
                (next.budget.events, next.budget.late_start) = (events, false);
                next.bank.too_late = true;
            },
            || "valid_until passes".into(),
        );
    }
}

fn account(list: &mut MoveList<'_>) {
    let bank = &list.from.bank;
    if bank.frozen {
        list.benign(|next| next.bank.frozen = false, || "the account is unfrozen".into());
    } else if let Some(events) = list.from.budget.events.checked_sub(1)
        && list.from.budget.freeze
        && !bank.ended()
    {
        list.optional(
            |next| {
                (next.budget.events, next.budget.freeze) = (events, false);
                next.bank.frozen = true;
            },
            || "the account is frozen".into(),
        );
    }
    if bank.restored
        && !bank.spent
        && let Some(events) = list.from.budget.events.checked_sub(1)
    {
        list.optional(
            |next| (next.budget.events, next.bank.spent) = (events, true),
            || "the customer spends the restored amount".into(),
        );
    }
    let refused = ReserveRecord::Refused(ReserveRefusal::InsufficientFunds);
    if !bank.funds && bank.reserve == Some(refused) {
        list.optional(|next| next.bank.funds = true, || "funds arrive".into());
    }
}

/// The restore of the customer's account, at every moment after it is due; the simulated clock has no time of the order's receipt, so
/// it may be due at any moment. It need not happen: the due time may lie far ahead.
fn restore(list: &mut MoveList<'_>) {
    if list.model.profile().restore_customer_after_ms.is_some() {
        list.optional(|next| next.bank.restore(), || "the ledger restores the customer's account".into());
    }
}

/// A failover to an asynchronous standby: everything that was committed since it fell behind is lost together.
fn failover(list: &mut MoveList<'_>) {
    match &list.from.standby {
        None => {
            let Some(failovers) = list.from.budget.failovers.checked_sub(1) else { return };
            list.optional(
                |next| {
                    next.budget.failovers = failovers;
                    next.standby = Some(Box::new(next.standby_now()));
                },
                || "the standby receives no more commits".into(),
            );
        }
        // Nobody promotes a standby that is behind by the switch's retention.
        Some(standby) if list.from.clock < ClockPhase::AfterRetention => list.optional(
            |next| next.fail_over((**standby).clone()),
            || "the standby is promoted: the commits since are lost".into(),
        ),
        Some(_) => {}
    }
}

fn decisions(list: &mut MoveList<'_>) {
    let bank = &list.from.bank;
    let none_open = bank.decision.as_ref().is_none_or(|decision| decision.outcome.is_some());
    // The workflow's validator accepts a decision only while the workflow awaits an operator.
    let reason = list.observation.operator_reason.filter(|_| !bank.ended() && none_open);
    if let (Some(reason), Some(remaining)) = (reason, list.from.budget.decisions.checked_sub(1)) {
        let id = list.model.bounds.decisions - list.from.budget.decisions;
        let Some(decision_id) = Model::decision_id(id) else { return };
        for action in reason.allowed() {
            list.benign(
                |next| {
                    next.budget.decisions = remaining;
                    next.bank.decision = Some(OpenDecision { id, action: *action, outcome: None });
                    next.store_message(WaitOutcome::Decided(Decision {
                        decision_id: decision_id.clone(),
                        action: *action,
                    }));
                },
                || format!("operators decide: {action}"),
            );
        }
    }
}

/// The corrections that two operators may book after the end. They report the truth about the transfer.
fn corrections(list: &mut MoveList<'_>) {
    for correction in Correction::ALL {
        let settled = list.from.switch.settled();
        let is_true = match correction {
            Correction::LateDebit => settled,
            Correction::ReturnCredit => !settled && !list.from.may_settle(list.model),
            Correction::WriteOff => true,
        };
        if is_true && list.from.bank.allows_correction(*correction) {
            list.benign(|next| next.bank.correct(*correction), || format!("operators correct: {correction}"));
        }
    }
}

/// Reconciliation compares the ended payment with the switch's statement, or operators with a letter of the switch.
fn reconciliation(list: &mut MoveList<'_>) {
    let State { bank, switch, .. } = list.from;
    if !list.from.was_decided_falsely(list.model) || !bank.ended() || switch.pending() {
        return;
    }
    let journal = bank.journal;
    let evidence = PaymentEvidence {
        state: bank.state,
        operator_reason: None,
        attempts: i32::from(bank.attempts),
        hold: bank.hold,
        is_return_recorded: bank.final_status == Some(FinalStatus::Returned),
        is_reserved: journal.reserve > 0,
        debits: i64::from(journal.debits()) - i64::from(journal.returns()),
        settled: Some(i64::from(switch.settled())),
        other_amounts: 0,
        settled_for_s: Some(i64::MAX),
        debited_before_s: Some(i64::MAX),
        returned_before_s: None,
        cancelling_s: None,
        idle_s: 0,
        has_workflow: None,
    };
    for drift in find_drift(&evidence, Tolerance::default()) {
        list.benign(|next| next.bank.record_drift(drift), || format!("reconciliation finds {drift}"));
    }
}
