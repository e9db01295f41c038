//! Which ends and which branches of the protocol an exploration has met, against the list of all there are.
//!
//! A branch is one answer that the code may get to one question, or one way that an attempt may end: each is
//! an arm of a `match` in the protocol. The names are made by exhaustive matches, so a new variant cannot be
//! retention_expired; that each is in the list, and each of the list is met, is checked by the exploration.

use std::collections::BTreeMap;

use payment_protocol::FinalState;
use payment_protocol::cancel::CancelAttemptOutcome;
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::facts::ReserveRecord;
use payment_protocol::poll::PollOutcome;
use payment_protocol::port::{
    AccountLockOutcome, CancelOutcome, DebitOutcome, FenceOutcome, NeedsOperatorOutcome, RecallOutcome,
    ReconcileOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome, WaitOutcome,
};
use payment_protocol::recall::RecallAttemptOutcome;
use payment_protocol::rules::{
    AttemptRuling, DebitByDecisionRuling, FinalStatusRuling, ReleaseByDecisionRuling,
};
use payment_protocol::submit::SubmitAttemptOutcome;
use payment_protocol::{PaymentState, cancel, recall, submit};

use crate::attempt::{Outcome, Reply};
use crate::model::Model;
use crate::run::{Answer, Step};
use crate::state::State;

/// Every end there is, with what leads to it, and every reason to stand before a person.
///
/// Not here: refusals for an unknown account and another currency, which are the same branch as a frozen one;
/// `start_refused`, which is the starter's and has no run; `invalid_payment`, which never reaches a switch;
/// `settled_without_attempt`, which needs a database older than the switch's book.
pub const ENDS: &[&str] = &[
    "settled",
    "rejected: frozen_account",
    "rejected: insufficient_funds",
    "rejected: started_too_late",
    "cancelled: customer_cancel",
    "timed_out: sla_expired",
    "failed: reserve_unknown",
    "failed: submit_refused",
    "failed: submit_unknown",
    "failed: not_sent",
    "failed: failure_reported",
    "failed: debit_refused",
    "failed: released_by_decision",
    "failed: cancel_retried_by_decision",
    "failed: interrupted",
    "needs_operator: confirmation_mismatch",
    "needs_operator: switch_retention_expired",
    "needs_operator: not_found_is_inconclusive",
    "needs_operator: no_cancel_or_query",
    "needs_operator: recall_refused",
    "needs_operator: recall_unsupported",
    "needs_operator: compensation_failed",
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
    "wait -> decided retry_cancel",
    "wait -> decided release",
    "wait -> decided settle",
];

/// Every branch that the fast tier comes to, and must.
///
/// Arms that the simulation cannot come to, and why: a payment that is not valid (`reject`) has no switch; an
/// answer that settles a transfer of which no attempt is on record needs a restored database
/// (`settled_without_attempt`); two decisions cannot meet on one hold, since the workflow takes one at a time.
pub const BRANCHES: &[&str] = &[
    "alert -> done",
    "ask to cancel -> dead",
    "ask to cancel -> differs",
    "ask to cancel -> ended",
    "ask to cancel -> settled",
    "ask to cancel -> success reported",
    "ask to cancel -> undecidable no_cancel_or_query",
    "ask to cancel -> undecidable not_found_is_inconclusive",
    "ask to cancel -> undecidable switch_retention_expired",
    "asking: again",
    "asking: again, after the deadline",
    "asking: again, our fault",
    "asking: dead",
    "asking: differs",
    "asking: ended",
    "asking: settled",
    "asking: undecidable no_cancel_or_query",
    "asking: undecidable not_found_is_inconclusive",
    "asking: undecidable switch_retention_expired",
    "attempt: account_busy",
    "attempt: again",
    "attempt: another_run",
    "attempt: cancel_started",
    "attempt: customer_cancel",
    "attempt: first",
    "attempt: no_open_hold",
    "attempt: second_attempt_forbidden",
    "attempt: reported_without_attempt",
    "attempt: switch_retention_expired",
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
    "carry out -> final_status dead",
    "carry out -> final_status settled",
    "decision: ask again",
    "decision: refused",
    "decision: released",
    "decision: settled",
    "decision: final_status dead",
    "decision: final_status settled",
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
    "needs operator -> final_status dead",
    "needs operator -> final_status settled",
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
    "recalling: RecallUnsupported",
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
    "settle by decision: switch_says_void",
    "stand -> customer cancel",
    "stand -> decided retry_cancel",
    "stand -> decided release",
    "stand -> decided settle",
    "stand -> failure reported",
    "stand -> success reported",
    "stand -> final_status written",
    "submit -> accepted",
    "submit -> not sent account_busy",
    "submit -> not sent another_run",
    "submit -> not sent cancel_started",
    "submit -> not sent customer_cancel",
    "submit -> not sent second_attempt_forbidden",
    "submit -> not sent reported_without_attempt",
    "submit -> not sent switch_retention_expired",
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
    "final_status: contradicts",
    "final_status: differs in amount",
    "final_status: first",
    "final_status: no attempt",
    "final_status: same",
    "wait -> customer cancel",
    "wait -> failure reported",
    "wait -> sla passed",
    "wait -> success reported",
    "wait -> final_status written",
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
        _ if end == FinalState::Settled => end.to_string(),
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
        Step::Cancel(_) => "ask to cancel",
        Step::Debit => "settle",
        Step::Recall => "recall",
        Step::Release(_) => "release",
        Step::WaitWithinSla => "wait",
        Step::WaitUntilEvent => "stand",
        Step::ApplyDecision(..) => "carry out",
        Step::NeedsOperator(_) => "needs operator",
        Step::Alert => "alert",
    }
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Done => "done".into(),
        Answer::Reserve(said) => match said {
            ReserveOutcome::Held => "held".into(),
            ReserveOutcome::Refused(refusal) => format!("refused {refusal}"),
            ReserveOutcome::AnotherRun => "another run".into(),
            ReserveOutcome::Ended(_) => "ended".into(),
            ReserveOutcome::Unknown => "unknown".into(),
        },
        Answer::Fence(FenceOutcome::Open(cause)) => {
            if cause.is_some() {
                "open, with a cause".into()
            } else {
                "open".into()
            }
        }
        Answer::Fence(FenceOutcome::Ended(_)) => "ended".into(),
        Answer::Submit(said) => match said {
            SubmitOutcome::Accepted => "accepted".into(),
            SubmitOutcome::Refused { .. } => "refused".into(),
            SubmitOutcome::Settled => "settled".into(),
            SubmitOutcome::NotSent(reason) => format!("not sent {reason}"),
            SubmitOutcome::Unknown => "unknown".into(),
        },
        Answer::Reconcile(said) => match said {
            ReconcileOutcome::Settled => "settled".into(),
            ReconcileOutcome::Failed { .. } => "failed".into(),
            ReconcileOutcome::Unknown => "unknown".into(),
        },
        Answer::Lock(said) => match said {
            AccountLockOutcome::Held => "held".into(),
            AccountLockOutcome::NotGranted => "not granted".into(),
            AccountLockOutcome::CustomerCancel => "customer cancel".into(),
        },
        Answer::Cancel(said) => match said {
            CancelOutcome::Void => "void".into(),
            CancelOutcome::Settled => "settled".into(),
            CancelOutcome::SuccessReported => "success reported".into(),
            CancelOutcome::Differs => "differs".into(),
            CancelOutcome::Undecidable(reason) => format!("undecidable {reason}"),
            CancelOutcome::Ended(_) => "ended".into(),
        },
        Answer::Debit(said) => match said {
            DebitOutcome::Done => "done".into(),
            DebitOutcome::Refused { .. } => "refused".into(),
            DebitOutcome::Differs => "differs".into(),
            DebitOutcome::NotConfirmed => "not confirmed".into(),
        },
        Answer::Recall(said) => match said {
            RecallOutcome::Recalled => "recalled".into(),
            RecallOutcome::Refused => "refused".into(),
            RecallOutcome::RecallUnsupported => "cannot recall".into(),
        },
        Answer::Release(said) => match said {
            ReleaseOutcome::Done(_) => "done".into(),
            ReleaseOutcome::Ended(_) => "ended".into(),
            ReleaseOutcome::Failed { .. } => "failed".into(),
        },
        Answer::Wait(said) => match said {
            WaitOutcome::SuccessReported => "success reported".into(),
            WaitOutcome::FinalStatusRecorded => "final_status written".into(),
            WaitOutcome::FailureReported { .. } => "failure reported".into(),
            WaitOutcome::CustomerCancel => "customer cancel".into(),
            WaitOutcome::SlaExpired => "sla passed".into(),
            WaitOutcome::Decided(decision) => format!("decided {}", decision.action),
        },
        Answer::ApplyDecision(said) => carried_out(said),
        Answer::NeedsOperator(said) => match said {
            NeedsOperatorOutcome::Stands => "stands".into(),
            NeedsOperatorOutcome::Verdict(final_status) => format!("final_status {final_status}"),
            NeedsOperatorOutcome::Ended(_) => "ended".into(),
        },
    }
}

fn carried_out(came: &DecisionOutcome) -> String {
    match came {
        DecisionOutcome::Settled => "settled".into(),
        DecisionOutcome::Released(_) => "released".into(),
        DecisionOutcome::RetryCancel => "ask again".into(),
        DecisionOutcome::FinalStatus(final_status) => format!("final_status {final_status}"),
        DecisionOutcome::Refused { .. } => "refused".into(),
        DecisionOutcome::Ended(_) => "ended".into(),
    }
}

/// The rulings and the switch's words; replies that only read have no branch of their own.
fn reply(reply: &Reply) -> Option<String> {
    Some(match reply {
        Reply::Done | Reply::Logged(_) | Reply::Begin(_) | Reply::Recall(_) | Reply::Decision(_) => {
            return None;
        }
        Reply::Found(found) => match found {
            None => "found".into(),
            Some(reason) => format!("found {reason}"),
        },
        Reply::RecordAttempt(ruling) => match ruling {
            AttemptRuling::Send(1) => "attempt: first".into(),
            AttemptRuling::Send(_) => "attempt: again".into(),
            AttemptRuling::Settled => "attempt: settled".into(),
            AttemptRuling::NotSent(reason) => format!("attempt: {reason}"),
        },
        Reply::FinalStatus(ruling) => match ruling {
            FinalStatusRuling::First => "final_status: first".into(),
            FinalStatusRuling::Same => "final_status: same".into(),
            FinalStatusRuling::Differs(difference) => format!("final_status: differs in {difference}"),
            FinalStatusRuling::NoAttempt => "final_status: no attempt".into(),
            FinalStatusRuling::Contradicts => "final_status: contradicts".into(),
        },
        Reply::DebitByDecision(ruling) => match ruling {
            DebitByDecisionRuling::Charge => "settle by decision: charge".into(),
            DebitByDecisionRuling::Ended(_) => "settle by decision: ended".into(),
            DebitByDecisionRuling::Refused(refusal) => format!("settle by decision: {refusal}"),
        },
        Reply::ReleaseByDecision(ruling, _) => match ruling {
            ReleaseByDecisionRuling::Release => "release by decision: release".into(),
            ReleaseByDecisionRuling::Ended(_) => "release by decision: ended".into(),
            ReleaseByDecisionRuling::Refused(refusal) => format!("release by decision: {refusal}"),
        },
        Reply::SendAnswer(answer) => match answer {
            submit::SendAnswer::Accepted => "switch: accepted".into(),
            submit::SendAnswer::Refused { .. } => "switch: refused".into(),
            submit::SendAnswer::Unknown { .. } => "switch: no answer to submit".into(),
        },
        Reply::CancelAnswer(heard) => match heard.answer {
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
        Reply::QueryAnswer(heard) => match heard.answer {
            submit::QueryAnswer::Pending => "look: pending".into(),
            submit::QueryAnswer::Settled(_) => "look: settled".into(),
            submit::QueryAnswer::Void { .. } => "look: dead".into(),
            submit::QueryAnswer::NotFound => "look: not found".into(),
            submit::QueryAnswer::OurFault { .. } => "look: our fault".into(),
            submit::QueryAnswer::NoAnswer { .. } => "look: no answer".into(),
        },
        Reply::RecallAnswer(heard) => match heard.answer {
            recall::RecallAnswer::Recalled => "recall: recalled".into(),
            recall::RecallAnswer::Refused { .. } => "recall: refused".into(),
            recall::RecallAnswer::RecallUnsupported => "recall: cannot".into(),
            recall::RecallAnswer::Unknown { .. } => "recall: unknown".into(),
        },
    })
}

fn outcome_name(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Submit(tried) => match tried {
            SubmitAttemptOutcome::Accepted => "submit: accepted".into(),
            SubmitAttemptOutcome::Refused { .. } => "submit: refused".into(),
            SubmitAttemptOutcome::Settled => "submit: settled".into(),
            SubmitAttemptOutcome::NotSent(_) => "submit: not sent".into(),
            SubmitAttemptOutcome::Unknown { .. } => "submit: unknown".into(),
        },
        Outcome::Cancel(asking) => match asking {
            CancelAttemptOutcome::Void => "asking: dead".into(),
            CancelAttemptOutcome::Settled => "asking: settled".into(),
            CancelAttemptOutcome::Differs => "asking: differs".into(),
            CancelAttemptOutcome::Undecidable(reason) => format!("asking: undecidable {reason}"),
            CancelAttemptOutcome::Ended(_) => "asking: ended".into(),
            CancelAttemptOutcome::Again { not_before_ms: Some(_), .. } => {
                "asking: again, after the deadline".into()
            }
            CancelAttemptOutcome::Again { alert: true, .. } => "asking: again, our fault".into(),
            CancelAttemptOutcome::Again { .. } => "asking: again".into(),
        },
        Outcome::Recall(RecallAttemptOutcome::Decided(recalled)) => format!("recalling: {recalled:?}"),
        Outcome::Recall(RecallAttemptOutcome::Again { .. }) => "recalling: again".into(),
        Outcome::Poll(polled) => match polled {
            PollOutcome::SuccessReported => "poll: success".into(),
            PollOutcome::FailureReported { .. } => "poll: failure".into(),
            PollOutcome::Again { .. } => "poll: again".into(),
        },
        Outcome::ApplyDecision(came) => format!("decision: {}", carried_out(came)),
    }
}
