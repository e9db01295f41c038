//! The replies of our ledger.

use payment_protocol::cause::Cause;
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::DecisionId;
use payment_protocol::port::SubmitProgress;
use payment_protocol::profile::Strategy;
use payment_protocol::rules::{
    AttemptRuling, DebitByDecisionRuling, DecisionRefusal, ReleaseByDecisionRuling,
};
use payment_protocol::submit::SendAnswer;

use super::CallResults;
use crate::attempt::{Activity, AttemptCall, AttemptReply};
use crate::bank::RunNumber;
use crate::listing::ListedTransfer;
use crate::model::{DEADLINE_MS, Model};
use crate::state::{Budget, State};

/// The reply of our ledger.
pub(super) fn reply(results: &mut CallResults<'_>, run: RunNumber, activity: &Activity, call: &AttemptCall) {
    results.benign("", |next, model| ledger_reply(next, model, run, activity, call));
    let lost =
        |budget: &mut Budget| budget.lost_commits.checked_sub(1).map(|left| budget.lost_commits = left);
    results.push(lost, false, "commits, and the commit is lost", |next, model| {
        let before = (next.bank.clone(), next.listing.known);
        let reply = ledger_reply(next, model, run, activity, call);
        if next.bank == before.0 {
            return None;
        }
        (next.bank, next.listing.known) = before;
        reply
    });
    let lied =
        |budget: &mut Budget| budget.false_decisions.checked_sub(1).map(|left| budget.false_decisions = left);
    results.push(lied, false, "on false evidence", |next, model| apply_falsely(next, model, activity, call));
    if *call == AttemptCall::RecordAttempt && results.model.profile().strategy == Strategy::Validate {
        results.fault("another payment has sent to the same account", |next, model| {
            let age_ms = model.age_ms(next.clock);
            let ruling = next.bank.record_attempt(run, model.payment(), age_ms, true, next.tried_to_send);
            Some(AttemptReply::RecordAttempt(ruling))
        });
    }
}

fn ledger_reply(
    next: &mut State,
    model: &Model,
    run: RunNumber,
    activity: &Activity,
    call: &AttemptCall,
) -> Option<AttemptReply> {
    Some(match call {
        AttemptCall::Logged => AttemptReply::Logged(next.bank.log.clone()),
        AttemptCall::RecordAttempt => {
            let age_ms = model.age_ms(next.clock);
            let ruling = {
                let account_busy = next.listing.second.keeps_account_busy();
                next.bank.record_attempt(run, model.payment(), age_ms, account_busy, next.tried_to_send)
            };
            next.tried_to_send |= matches!(ruling, AttemptRuling::Send(_));
            AttemptReply::RecordAttempt(ruling)
        }
        AttemptCall::RecordAnswer(n, answer) => {
            next.bank.record_answer(model.profile(), *n, answer);
            if *answer == SendAnswer::Accepted {
                // The answer names the transfer's id at the switch.
                next.listing.known.get_or_insert(ListedTransfer::Ours);
            }
            AttemptReply::Done
        }
        AttemptCall::RecordFound => AttemptReply::RecordFound(next.bank.record_found()),
        AttemptCall::RecordSettled(report) => {
            AttemptReply::FinalStatus(next.bank.record_settled(model.payment(), report))
        }
        AttemptCall::RecordReturned(report) => {
            AttemptReply::FinalStatus(next.bank.record_returned(model.payment(), report))
        }
        AttemptCall::RecordVoid(reason) => {
            AttemptReply::FinalStatus(next.bank.record_void(model.profile(), *reason))
        }
        AttemptCall::Begin => {
            let (cause, submit) = match activity {
                Activity::Cancel(cause, submit) => (cause.clone(), *submit),
                Activity::ApplyDecision(.., submit) => (Cause::ReleasedByDecision, *submit),
                _ => (Cause::ReleasedByDecision, SubmitProgress::Scheduled),
            };
            AttemptReply::Begin(next.bank.begin_cancel(model.profile(), &cause, DEADLINE_MS, submit))
        }
        AttemptCall::BeginQuery => {
            let age_ms = model.age_ms(next.clock);
            AttemptReply::BeginQuery(next.bank.begin_query(model.profile(), age_ms))
        }
        AttemptCall::NeedsQuery => AttemptReply::NeedsQuery(next.bank.needs_query(model.payment())),
        AttemptCall::Debit(confirmed) => {
            AttemptReply::Debit(next.bank.debit_confirmed(model.payment(), confirmed.as_ref()))
        }
        // The simulated clock has one deadline, which every attempt has.
        AttemptCall::BoundDeadline(_) => AttemptReply::Deadline(DEADLINE_MS),
        AttemptCall::RecallRecorded => AttemptReply::Recall(next.bank.recall_recorded()),
        AttemptCall::RecordRecall(record) => AttemptReply::Recall(Some(next.bank.record_recall(*record))),
        AttemptCall::DecisionRecorded => {
            AttemptReply::Decision(next.bank.decision_outcome(decision_number(activity)?))
        }
        AttemptCall::DebitByDecision => debit_by_decision(next, model, activity)?,
        AttemptCall::ReleaseByDecision => release_by_decision(next, model, activity)?,
        AttemptCall::CloseDecision(outcome) => {
            next.bank.close_decision(decision_number(activity)?, outcome.clone());
            AttemptReply::Done
        }
        AttemptCall::Send(_)
        | AttemptCall::Cancel(..)
        | AttemptCall::Query(_)
        | AttemptCall::Statement(_)
        | AttemptCall::Recall(..) => return None,
    })
}

/// A decision on false evidence; `None` if its evidence is true, or the ledger refuses it.
fn apply_falsely(
    next: &mut State,
    model: &Model,
    activity: &Activity,
    call: &AttemptCall,
) -> Option<AttemptReply> {
    let number = decision_number(activity)?;
    match call {
        AttemptCall::DebitByDecision if !may_debit(next, model) => {
            let ruling = next.bank.debit_by_decision(number, model.profile());
            (ruling == DebitByDecisionRuling::Charge).then_some(AttemptReply::DebitByDecision(ruling))
        }
        AttemptCall::ReleaseByDecision if !may_release(next, model) => {
            let (ruling, cause) = next.bank.release_by_decision(number);
            (ruling == ReleaseByDecisionRuling::Release)
                .then_some(AttemptReply::ReleaseByDecision(ruling, cause))
        }
        _ => None,
    }
}

/// Whether the evidence for a debit by decision is true. Money that left on record and came back by no report is booked twice: by the debit
/// and by a correction.
fn may_debit(next: &State, model: &Model) -> bool {
    let left_on_record =
        next.bank.final_status == Some(FinalStatus::Settled) && !model.knows_of_return(&next.bank);
    let has_left = next.switch.settled() || (left_on_record && next.switch.returned());
    next.bank.ended() || (has_left && !next.is_being_recalled(model))
}

/// Whether the evidence for a release by decision is true.
fn may_release(next: &State, model: &Model) -> bool {
    next.bank.ended() || !(next.switch.settled() || next.may_settle(model))
}

/// Operators claim only what is true, or notice a false claim in time. Their false claims: [`apply_falsely`].
fn debit_by_decision(next: &mut State, model: &Model, activity: &Activity) -> Option<AttemptReply> {
    if !may_debit(next, model) {
        let refusal = DecisionRefusal::SwitchSaysVoid;
        return Some(AttemptReply::DebitByDecision(DebitByDecisionRuling::Refused(refusal)));
    }
    let ruling = next.bank.debit_by_decision(decision_number(activity)?, model.profile());
    Some(AttemptReply::DebitByDecision(ruling))
}

/// See [`debit_by_decision`].
fn release_by_decision(next: &mut State, model: &Model, activity: &Activity) -> Option<AttemptReply> {
    if !may_release(next, model) {
        let refused = ReleaseByDecisionRuling::Refused(DecisionRefusal::SwitchSaysSettled);
        return Some(AttemptReply::ReleaseByDecision(refused, Cause::ReleasedByDecision));
    }
    let (ruling, cause) = next.bank.release_by_decision(decision_number(activity)?);
    Some(AttemptReply::ReleaseByDecision(ruling, cause))
}

/// The number in a decision's id.
fn decision_number(activity: &Activity) -> Option<u8> {
    let Activity::ApplyDecision(decision, ..) = activity else { return None };
    let id: &DecisionId = &decision.decision_id;
    id.as_str().rsplit('-').next()?.parse().ok()
}
