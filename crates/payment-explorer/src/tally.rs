//! Which ends and which branches of the protocol an exploration has met, against the list of all there are.
//!
//! A branch is one answer that the code may get to one question, or one way that an attempt may end: each is
//! an arm of a `match` in the protocol. The names are made by exhaustive matches, so a new variant cannot be
//! forgotten; that each is in the list, and each of the list is met, is checked by the exploration.

use std::collections::BTreeMap;

use payment_protocol::End;
use payment_protocol::cancel::Asking;
use payment_protocol::decision::CarriedOut;
use payment_protocol::facts::ReserveRecord;
use payment_protocol::poll::Polled;
use payment_protocol::recall::Recalling;
use payment_protocol::rules::{
    AttemptRuling, ReleaseByDecisionRuling, SettleByDecisionRuling, VerdictRuling,
};
use payment_protocol::submit::Attempt;
use payment_protocol::world::{
    AccountLock, Asked, Event, Fenced, Recalled, Reconciled, Released, Reserved, Settled, Standing, Submitted,
};
use payment_protocol::{PaymentState, cancel, recall, submit};

use crate::attempt::{Outcome, Reply};
use crate::model::Model;
use crate::run::{Answer, Step};
use crate::state::State;

/// Every end there is, with what leads to it, and every reason to stand before a person.
///
/// Not here: refusals for an unknown account and another currency, which are the same branch as a frozen one;
/// `start_refused`, which is the starter's and has no run; `invalid_payment`, which never reaches a switch;
/// `settled_not_sent`, which needs a database older than the switch's book.
pub const ENDS: &[&str] = &[
    "settled",
    "rejected: frozen_account",
    "rejected: insufficient_funds",
    "rejected: started_too_late",
    "cancelled: customer_cancel",
    "timed_out: sla_passed",
    "failed: reserve_unknown",
    "failed: submit_refused",
    "failed: submit_unknown",
    "failed: not_sent",
    "failed: failure_reported",
    "failed: settle_refused",
    "failed: released_by_decision",
    "failed: asked_by_decision",
    "failed: interrupted",
    "needs_operator: report_differs",
    "needs_operator: retention_passed",
    "needs_operator: nothing_proves",
    "needs_operator: cannot_ask",
    "needs_operator: recall_refused",
    "needs_operator: cannot_recall",
    "needs_operator: undo_failed",
];

/// Branches that take a fault and a decision, or two faults, and are met by the deep tier.
pub const DEEPER: &[&str] = &[
    "carry out -> ended",
    "decision: ended",
    "fence -> ended",
    "needs operator -> ended",
    "release by decision: ended",
    "settle by decision: ended",
    "settle by decision: recall_under_way",
    "submit -> not sent no_open_hold",
    "wait -> decided ask_again",
    "wait -> decided release",
    "wait -> decided settle",
];

/// Every branch that the fast tier comes to, and must.
///
/// Arms that the simulation cannot come to, and why: a payment that is not valid (`reject`) has no switch; an
/// answer that settles a transfer of which no attempt is on record needs a restored database
/// (`settled_not_sent`); two decisions cannot meet on one hold, since the workflow takes one at a time.
pub const BRANCHES: &[&str] = &[
    "alert -> done",
    "ask to cancel -> dead",
    "ask to cancel -> differs",
    "ask to cancel -> ended",
    "ask to cancel -> settled",
    "ask to cancel -> success reported",
    "ask to cancel -> undecidable cannot_ask",
    "ask to cancel -> undecidable nothing_proves",
    "ask to cancel -> undecidable retention_passed",
    "asking: again",
    "asking: again, after the deadline",
    "asking: again, our fault",
    "asking: dead",
    "asking: differs",
    "asking: ended",
    "asking: settled",
    "asking: undecidable cannot_ask",
    "asking: undecidable nothing_proves",
    "asking: undecidable retention_passed",
    "attempt: account_busy",
    "attempt: again",
    "attempt: another_run",
    "attempt: cancel_asked",
    "attempt: customer_cancel",
    "attempt: first",
    "attempt: no_open_hold",
    "attempt: only_one_attempt",
    "attempt: reported_unsent",
    "attempt: retention_passed",
    "attempt: settled",
    "cancel: already rejected",
    "cancel: already settled",
    "cancel: cancelled",
    "cancel: cannot cancel",
    "cancel: no answer",
    "cancel: not found",
    "cancel: our fault",
    "cancel: tombstoned",
    "cancel: undecided",
    "carry out -> ask again",
    "carry out -> refused",
    "carry out -> released",
    "carry out -> settled",
    "carry out -> verdict dead",
    "carry out -> verdict settled",
    "decision: ask again",
    "decision: refused",
    "decision: released",
    "decision: settled",
    "decision: verdict dead",
    "decision: verdict settled",
    "fence -> open",
    "fence -> open, with a cause",
    "found",
    "lock -> customer cancel",
    "lock -> held",
    "lock -> not granted",
    "look: dead",
    "look: no answer",
    "look: not found",
    "look: our fault",
    "look: pending",
    "look: settled",
    "needs operator -> stands",
    "needs operator -> verdict dead",
    "needs operator -> verdict settled",
    "poll: again",
    "poll: failure",
    "poll: success",
    "recall -> cannot recall",
    "recall -> recalled",
    "recall -> refused",
    "recall: cannot",
    "recall: recalled",
    "recall: refused",
    "recall: unknown",
    "recalling: CannotRecall",
    "recalling: Recalled",
    "recalling: Refused",
    "recalling: again",
    "reconcile -> failed",
    "reconcile -> settled",
    "reconcile -> unknown",
    "release -> done",
    "release -> failed",
    "release by decision: release",
    "release by decision: switch_says_settled",
    "reserve -> another run",
    "reserve -> ended",
    "reserve -> held",
    "reserve -> refused customer_cancel",
    "reserve -> refused frozen_account",
    "reserve -> refused insufficient_funds",
    "reserve -> refused started_too_late",
    "reserve -> unknown",
    "settle -> differs",
    "settle -> done",
    "settle -> not confirmed",
    "settle -> refused",
    "settle by decision: charge",
    "settle by decision: switch_says_dead",
    "stand -> customer cancel",
    "stand -> decided ask_again",
    "stand -> decided release",
    "stand -> decided settle",
    "stand -> failure reported",
    "stand -> success reported",
    "stand -> verdict written",
    "submit -> accepted",
    "submit -> not sent account_busy",
    "submit -> not sent another_run",
    "submit -> not sent cancel_asked",
    "submit -> not sent customer_cancel",
    "submit -> not sent only_one_attempt",
    "submit -> not sent reported_unsent",
    "submit -> not sent retention_passed",
    "submit -> refused",
    "submit -> settled",
    "submit -> unknown",
    "submit: accepted",
    "submit: not sent",
    "submit: refused",
    "submit: settled",
    "submit: unknown",
    "switch: accepted",
    "switch: no answer to submit",
    "switch: refused",
    "unlock -> done",
    "verdict: contradicts",
    "verdict: differs in amount",
    "verdict: first",
    "verdict: no attempt",
    "verdict: same",
    "wait -> customer cancel",
    "wait -> failure reported",
    "wait -> sla passed",
    "wait -> success reported",
    "wait -> verdict written",
];

/// The end of a payment with what led to it, or why it stands before a person; none while it is under way.
#[must_use]
pub fn end(state: &State) -> Option<String> {
    let bank = &state.bank;
    if bank.state == PaymentState::NeedsOperator {
        return bank.operator_reason.map(|reason| format!("needs_operator: {reason}"));
    }
    let end = bank.state.end()?;
    Some(match (&bank.cause, bank.reserve) {
        _ if end == End::Settled => end.to_string(),
        (Some(cause), _) => format!("{end}: {}", cause.code()),
        (None, Some(ReserveRecord::Refused(refusal))) => format!("{end}: {refusal}"),
        (None, _) => end.to_string(),
    })
}

/// How often each branch was met in an exploration.
#[must_use]
pub fn branches(model: &Model) -> BTreeMap<String, u64> {
    let mut met = BTreeMap::new();
    for exchange in model.met_by_runs() {
        let name = format!("{} -> {}", question(&exchange.asked), answer(&exchange.heard));
        *met.entry(name).or_default() += 1;
    }
    for exchange in model.met_by_attempts() {
        if let Some(name) = reply(&exchange.heard) {
            *met.entry(name).or_default() += 1;
        }
    }
    for outcome in model.outcomes_met() {
        *met.entry(outcome_name(&outcome)).or_default() += 1;
    }
    met
}

fn question(step: &Step) -> &'static str {
    match step {
        Step::Reject => "reject",
        Step::Reserve => "reserve",
        Step::Fence => "fence",
        Step::Submit => "submit",
        Step::Reconcile => "reconcile",
        Step::Lock => "lock",
        Step::Unlock => "unlock",
        Step::AskToCancel(_) => "ask to cancel",
        Step::Settle => "settle",
        Step::Recall => "recall",
        Step::Release(_) => "release",
        Step::WaitWithinSla => "wait",
        Step::WaitWithoutEnd => "stand",
        Step::CarryOut(..) => "carry out",
        Step::NeedsOperator(_) => "needs operator",
        Step::Alert => "alert",
    }
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Done => "done".into(),
        Answer::Reserved(said) => match said {
            Reserved::Held => "held".into(),
            Reserved::Refused(refusal) => format!("refused {refusal}"),
            Reserved::AnotherRun => "another run".into(),
            Reserved::Ended(_) => "ended".into(),
            Reserved::Unknown => "unknown".into(),
        },
        Answer::Fenced(Fenced::Open(cause)) => {
            if cause.is_some() {
                "open, with a cause".into()
            } else {
                "open".into()
            }
        }
        Answer::Fenced(Fenced::Ended(_)) => "ended".into(),
        Answer::Submitted(said) => match said {
            Submitted::Accepted => "accepted".into(),
            Submitted::Refused { .. } => "refused".into(),
            Submitted::Settled => "settled".into(),
            Submitted::NotSent(reason) => format!("not sent {reason}"),
            Submitted::Unknown => "unknown".into(),
        },
        Answer::Reconciled(said) => match said {
            Reconciled::Settled => "settled".into(),
            Reconciled::Failed { .. } => "failed".into(),
            Reconciled::Unknown => "unknown".into(),
        },
        Answer::Lock(said) => match said {
            AccountLock::Held => "held".into(),
            AccountLock::NotGranted => "not granted".into(),
            AccountLock::CustomerCancel => "customer cancel".into(),
        },
        Answer::Asked(said) => match said {
            Asked::Dead => "dead".into(),
            Asked::Settled => "settled".into(),
            Asked::SuccessReported => "success reported".into(),
            Asked::Differs => "differs".into(),
            Asked::Undecidable(reason) => format!("undecidable {reason}"),
            Asked::Ended(_) => "ended".into(),
        },
        Answer::Settled(said) => match said {
            Settled::Done => "done".into(),
            Settled::Refused { .. } => "refused".into(),
            Settled::Differs => "differs".into(),
            Settled::NotConfirmed => "not confirmed".into(),
        },
        Answer::Recalled(said) => match said {
            Recalled::Recalled => "recalled".into(),
            Recalled::Refused => "refused".into(),
            Recalled::CannotRecall => "cannot recall".into(),
        },
        Answer::Released(said) => match said {
            Released::Done(_) => "done".into(),
            Released::Ended(_) => "ended".into(),
            Released::Failed { .. } => "failed".into(),
        },
        Answer::Event(said) => match said {
            Event::SuccessReported => "success reported".into(),
            Event::VerdictWritten => "verdict written".into(),
            Event::FailureReported { .. } => "failure reported".into(),
            Event::CustomerCancel => "customer cancel".into(),
            Event::SlaPassed => "sla passed".into(),
            Event::Decided(decision) => format!("decided {}", decision.action),
        },
        Answer::CarriedOut(said) => carried_out(said),
        Answer::Standing(said) => match said {
            Standing::Stands => "stands".into(),
            Standing::Verdict(verdict) => format!("verdict {verdict}"),
            Standing::Ended(_) => "ended".into(),
        },
    }
}

fn carried_out(came: &CarriedOut) -> String {
    match came {
        CarriedOut::Settled => "settled".into(),
        CarriedOut::Released(_) => "released".into(),
        CarriedOut::AskAgain => "ask again".into(),
        CarriedOut::Verdict(verdict) => format!("verdict {verdict}"),
        CarriedOut::Refused { .. } => "refused".into(),
        CarriedOut::Ended(_) => "ended".into(),
    }
}

/// The rulings and the switch's words; replies that only read have no branch of their own.
fn reply(reply: &Reply) -> Option<String> {
    Some(match reply {
        Reply::Done | Reply::Logged(_) | Reply::Begun(_) | Reply::Recall(_) | Reply::Decision(_) => {
            return None;
        }
        Reply::Found(found) => match found {
            None => "found".into(),
            Some(reason) => format!("found {reason}"),
        },
        Reply::Attempt(ruling) => match ruling {
            AttemptRuling::Send(1) => "attempt: first".into(),
            AttemptRuling::Send(_) => "attempt: again".into(),
            AttemptRuling::Settled => "attempt: settled".into(),
            AttemptRuling::NotSent(reason) => format!("attempt: {reason}"),
        },
        Reply::Verdict(ruling) => match ruling {
            VerdictRuling::First => "verdict: first".into(),
            VerdictRuling::Same => "verdict: same".into(),
            VerdictRuling::Differs(difference) => format!("verdict: differs in {difference}"),
            VerdictRuling::NoAttempt => "verdict: no attempt".into(),
            VerdictRuling::Contradicts => "verdict: contradicts".into(),
        },
        Reply::SettleByDecision(ruling) => match ruling {
            SettleByDecisionRuling::Charge => "settle by decision: charge".into(),
            SettleByDecisionRuling::Ended(_) => "settle by decision: ended".into(),
            SettleByDecisionRuling::Refused(refusal) => format!("settle by decision: {refusal}"),
        },
        Reply::ReleaseByDecision(ruling, _) => match ruling {
            ReleaseByDecisionRuling::Release => "release by decision: release".into(),
            ReleaseByDecisionRuling::Ended(_) => "release by decision: ended".into(),
            ReleaseByDecisionRuling::Refused(refusal) => format!("release by decision: {refusal}"),
        },
        Reply::Sent(answer) => match answer {
            submit::SendAnswer::Accepted => "switch: accepted".into(),
            submit::SendAnswer::Refused { .. } => "switch: refused".into(),
            submit::SendAnswer::Unknown { .. } => "switch: no answer to submit".into(),
        },
        Reply::Cancelled(heard) => match heard.answer {
            cancel::CancelAnswer::Cancelled { tombstoned: false } => "cancel: cancelled".into(),
            cancel::CancelAnswer::Cancelled { tombstoned: true } => "cancel: tombstoned".into(),
            cancel::CancelAnswer::AlreadyRejected => "cancel: already rejected".into(),
            cancel::CancelAnswer::AlreadySettled(_) => "cancel: already settled".into(),
            cancel::CancelAnswer::NotFound => "cancel: not found".into(),
            cancel::CancelAnswer::Undecided { .. } => "cancel: undecided".into(),
            cancel::CancelAnswer::CannotCancel => "cancel: cannot cancel".into(),
            cancel::CancelAnswer::OurFault { .. } => "cancel: our fault".into(),
            cancel::CancelAnswer::NoAnswer { .. } => "cancel: no answer".into(),
        },
        Reply::Seen(heard) => match heard.answer {
            submit::QueryAnswer::Pending => "look: pending".into(),
            submit::QueryAnswer::Settled(_) => "look: settled".into(),
            submit::QueryAnswer::Dead { .. } => "look: dead".into(),
            submit::QueryAnswer::NotFound => "look: not found".into(),
            submit::QueryAnswer::OurFault { .. } => "look: our fault".into(),
            submit::QueryAnswer::NoAnswer { .. } => "look: no answer".into(),
        },
        Reply::GivenBack(heard) => match heard.answer {
            recall::RecallAnswer::Recalled => "recall: recalled".into(),
            recall::RecallAnswer::Refused { .. } => "recall: refused".into(),
            recall::RecallAnswer::CannotRecall => "recall: cannot".into(),
            recall::RecallAnswer::Unknown { .. } => "recall: unknown".into(),
        },
    })
}

fn outcome_name(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Submit(tried) => match tried {
            Attempt::Accepted => "submit: accepted".into(),
            Attempt::Refused { .. } => "submit: refused".into(),
            Attempt::Settled => "submit: settled".into(),
            Attempt::NotSent(_) => "submit: not sent".into(),
            Attempt::Unknown { .. } => "submit: unknown".into(),
        },
        Outcome::Asking(asking) => match asking {
            Asking::Dead => "asking: dead".into(),
            Asking::Settled => "asking: settled".into(),
            Asking::Differs => "asking: differs".into(),
            Asking::Undecidable(reason) => format!("asking: undecidable {reason}"),
            Asking::Ended(_) => "asking: ended".into(),
            Asking::Again { not_before_ms: Some(_), .. } => "asking: again, after the deadline".into(),
            Asking::Again { alert: true, .. } => "asking: again, our fault".into(),
            Asking::Again { .. } => "asking: again".into(),
        },
        Outcome::Recalling(Recalling::Decided(recalled)) => format!("recalling: {recalled:?}"),
        Outcome::Recalling(Recalling::Again { .. }) => "recalling: again".into(),
        Outcome::Polled(polled) => match polled {
            Polled::SuccessReported => "poll: success".into(),
            Polled::FailureReported { .. } => "poll: failure".into(),
            Polled::Again { .. } => "poll: again".into(),
        },
        Outcome::CarriedOut(came) => format!("decision: {}", carried_out(came)),
    }
}
