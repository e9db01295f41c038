//! The names of calls, replies and attempt outcomes.

use payment_protocol::cancel::{CancelAnswer, CancelAttemptOutcome};
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::poll::PollOutcome;
use payment_protocol::port::{
    AccountLockOutcome, CancelOutcome, DebitOutcome, FenceOutcome, NeedsOperatorOutcome, RecallOutcome,
    ReconcileOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome, WaitOutcome,
};
use payment_protocol::recall::{RecallAnswer, RecallAttemptOutcome};
use payment_protocol::rules::{
    AskRuling, AttemptRuling, DebitByDecisionRuling, FinalStatusRuling, ReleaseByDecisionRuling,
};
use payment_protocol::submit::{QueryAnswer, SendAnswer, SubmitAttemptOutcome};

use crate::attempt::{AttemptOutcome, AttemptReply};
use crate::workflow::{PortCall, PortReply};

pub(super) fn port_call(call: &PortCall) -> &'static str {
    match call {
        PortCall::Reject => "reject",
        PortCall::Reserve => "reserve",
        PortCall::Fence => "fence",
        PortCall::Submit => "submit",
        PortCall::Reconcile => "reconcile",
        PortCall::Lock => "lock",
        PortCall::Unlock => "unlock",
        PortCall::Cancel(..) => "cancel",
        PortCall::Debit => "debit",
        PortCall::Recall => "recall",
        PortCall::Release(_) => "release",
        PortCall::WaitWithinSla => "wait within sla",
        PortCall::WaitUntilEvent => "wait for operator",
        PortCall::ApplyDecision(..) => "apply decision",
        PortCall::NeedsOperator(_) => "needs operator",
        PortCall::Alert => "alert",
    }
}

pub(super) fn port_reply(reply: &PortReply) -> String {
    match reply {
        PortReply::Done => "done".into(),
        PortReply::Reserve(outcome) => reserve(outcome),
        PortReply::Fence(outcome) => match outcome {
            FenceOutcome::Open(None) => "open".into(),
            FenceOutcome::Open(Some(_)) => "open, with a cause".into(),
            FenceOutcome::Ended(_) => "ended".into(),
            FenceOutcome::Differs => "differs".into(),
            FenceOutcome::Failed { .. } => "failed".into(),
        },
        PortReply::Submit(outcome) => submit(outcome),
        PortReply::Reconcile(outcome) => match outcome {
            ReconcileOutcome::Settled => "settled".into(),
            ReconcileOutcome::Failed { .. } => "failed".into(),
            ReconcileOutcome::Unknown => "unknown".into(),
        },
        PortReply::Lock(outcome) => match outcome {
            AccountLockOutcome::Held => "held".into(),
            AccountLockOutcome::NotGranted => "not granted".into(),
            AccountLockOutcome::CustomerCancel => "customer cancel".into(),
        },
        PortReply::Cancel(outcome) => cancel(outcome),
        PortReply::Debit(outcome) => debit(outcome).into(),
        PortReply::Recall(outcome) => recall(outcome).into(),
        PortReply::Release(outcome) => match outcome {
            ReleaseOutcome::Done(_) => "done".into(),
            ReleaseOutcome::Ended(_) => "ended".into(),
            ReleaseOutcome::Failed { .. } => "failed".into(),
        },
        PortReply::Wait(outcome) => wait(outcome),
        PortReply::ApplyDecision(outcome) => decision(outcome),
        PortReply::NeedsOperator(outcome) => match outcome {
            NeedsOperatorOutcome::AwaitsOperator => "awaits operator".into(),
            NeedsOperatorOutcome::FinalStatus(final_status) => format!("final status {final_status}"),
            NeedsOperatorOutcome::Ended(_) => "ended".into(),
        },
    }
}

fn reserve(outcome: &ReserveOutcome) -> String {
    match outcome {
        ReserveOutcome::Held => "held".into(),
        ReserveOutcome::Refused(refusal) => format!("refused {refusal}"),
        ReserveOutcome::AnotherRun => "another run".into(),
        ReserveOutcome::Ended(_) => "ended".into(),
        ReserveOutcome::Differs => "differs".into(),
        ReserveOutcome::Unknown => "unknown".into(),
    }
}

fn submit(outcome: &SubmitOutcome) -> String {
    match outcome {
        SubmitOutcome::Accepted => "accepted".into(),
        SubmitOutcome::Refused { .. } => "refused".into(),
        SubmitOutcome::Settled => "settled".into(),
        SubmitOutcome::NotSent(reason) => format!("not sent {reason}"),
        SubmitOutcome::Unknown => "unknown".into(),
    }
}

fn cancel(outcome: &CancelOutcome) -> String {
    match outcome {
        CancelOutcome::Void => "void".into(),
        CancelOutcome::Settled => "settled".into(),
        CancelOutcome::SuccessReported => "success reported".into(),
        CancelOutcome::Differs => "differs".into(),
        CancelOutcome::Undecidable(reason) => format!("undecidable {reason}"),
        CancelOutcome::Ended(_) => "ended".into(),
    }
}

fn debit(outcome: &DebitOutcome) -> &'static str {
    match outcome {
        DebitOutcome::Done => "done",
        DebitOutcome::Refused { .. } => "refused",
        DebitOutcome::Returned => "returned",
        DebitOutcome::NoHold => "no hold",
        DebitOutcome::Failed { .. } => "failed",
        DebitOutcome::Differs => "differs",
        DebitOutcome::NotConfirmed => "not confirmed",
    }
}

fn recall(outcome: &RecallOutcome) -> &'static str {
    match outcome {
        RecallOutcome::Recalled => "recalled",
        RecallOutcome::Refused => "refused",
        RecallOutcome::RecallUnsupported => "unsupported",
    }
}

fn wait(outcome: &WaitOutcome) -> String {
    match outcome {
        WaitOutcome::SuccessReported => "success reported".into(),
        WaitOutcome::FinalStatusRecorded => "final status recorded".into(),
        WaitOutcome::FailureReported { .. } => "failure reported".into(),
        WaitOutcome::CustomerCancel => "customer cancel".into(),
        WaitOutcome::SlaExpired => "sla expired".into(),
        WaitOutcome::OperatorCallDue => "operator call due".into(),
        WaitOutcome::Decided(decision) => format!("decided {}", decision.action),
    }
}

fn decision(outcome: &DecisionOutcome) -> String {
    match outcome {
        DecisionOutcome::Settled => "settled".into(),
        DecisionOutcome::Released(_) => "released".into(),
        DecisionOutcome::RetryCancel => "retry cancel".into(),
        DecisionOutcome::FinalStatus(final_status) => format!("final status {final_status}"),
        DecisionOutcome::Refused { .. } => "refused".into(),
        DecisionOutcome::Ended(_) => "ended".into(),
    }
}

/// The rulings of the ledger and the answers of the switch; `None` for a reply that only reads, which has no
/// branch of its own.
pub(super) fn attempt_reply(reply: &AttemptReply) -> Option<String> {
    Some(match reply {
        AttemptReply::Done
        | AttemptReply::Logged(_)
        | AttemptReply::Begin(_)
        | AttemptReply::Deadline(_)
        | AttemptReply::Recall(_)
        | AttemptReply::Decision(_) => return None,
        AttemptReply::RecordFound(None) => "record found: recorded".into(),
        AttemptReply::RecordFound(Some(reason)) => format!("record found: {reason}"),
        AttemptReply::RecordAttempt(ruling) => match ruling {
            AttemptRuling::Send(1) => "attempt ruling: send first".into(),
            AttemptRuling::Send(_) => "attempt ruling: send again".into(),
            AttemptRuling::Settled => "attempt ruling: settled".into(),
            AttemptRuling::NotSent(reason) => format!("attempt ruling: {reason}"),
        },
        AttemptReply::BeginQuery(ruling) => match ruling {
            AskRuling::Ask => "query ruling: ask".into(),
            AskRuling::TooEarly { .. } => "query ruling: too early".into(),
            AskRuling::Spent => "query ruling: spent".into(),
        },
        AttemptReply::NeedsQuery(needed) => format!("debit needs a query: {needed}"),
        AttemptReply::Debit(outcome) => format!("debit after a query: {}", debit(outcome)),
        AttemptReply::FinalStatus(ruling) => match ruling {
            FinalStatusRuling::First => "final status ruling: first".into(),
            FinalStatusRuling::Same => "final status ruling: same".into(),
            FinalStatusRuling::Differs(difference) => format!("final status ruling: differs in {difference}"),
            FinalStatusRuling::NoAttempt => "final status ruling: no attempt".into(),
            FinalStatusRuling::Contradicts => "final status ruling: contradicts".into(),
        },
        AttemptReply::DebitByDecision(ruling) => match ruling {
            DebitByDecisionRuling::Charge => "debit by decision ruling: charge".into(),
            DebitByDecisionRuling::Ended(_) => "debit by decision ruling: ended".into(),
            DebitByDecisionRuling::Refused(refusal) => format!("debit by decision ruling: {refusal}"),
        },
        AttemptReply::ReleaseByDecision(ruling, _) => match ruling {
            ReleaseByDecisionRuling::Release => "release by decision ruling: release".into(),
            ReleaseByDecisionRuling::Ended(_) => "release by decision ruling: ended".into(),
            ReleaseByDecisionRuling::Refused(refusal) => format!("release by decision ruling: {refusal}"),
        },
        AttemptReply::SendAnswer(answer) => send_answer(answer).into(),
        AttemptReply::CancelAnswer(response) => cancel_answer(&response.answer).into(),
        AttemptReply::QueryAnswer(response) => query_answer(&response.answer).into(),
        AttemptReply::RecallAnswer(response) => recall_answer(&response.answer).into(),
    })
}

fn send_answer(answer: &SendAnswer) -> &'static str {
    match answer {
        SendAnswer::Accepted => "send answer: accepted",
        SendAnswer::Refused { .. } => "send answer: refused",
        SendAnswer::Unknown { .. } => "send answer: none",
    }
}

fn cancel_answer(answer: &CancelAnswer) -> &'static str {
    match answer {
        CancelAnswer::Cancelled { tombstoned: Some(false) } => "cancel answer: cancelled",
        CancelAnswer::Cancelled { tombstoned: Some(true) } => "cancel answer: tombstoned",
        CancelAnswer::Cancelled { tombstoned: None } => "cancel answer: cancelled, unsaid whether known",
        CancelAnswer::AlreadyRejected => "cancel answer: already rejected",
        CancelAnswer::AlreadyReturned(_) => "cancel answer: already returned",
        CancelAnswer::AlreadySettled(_) => "cancel answer: already settled",
        CancelAnswer::NotFound => "cancel answer: not found",
        CancelAnswer::Undecided { .. } => "cancel answer: undecided",
        CancelAnswer::CannotCancel => "cancel answer: cannot cancel",
        CancelAnswer::OurFault { .. } => "cancel answer: our fault",
        CancelAnswer::NoAnswer { .. } => "cancel answer: none",
    }
}

fn query_answer(answer: &QueryAnswer) -> &'static str {
    match answer {
        QueryAnswer::Pending => "query answer: pending",
        QueryAnswer::Returned(_) => "query answer: returned",
        QueryAnswer::Settled(_) => "query answer: settled",
        QueryAnswer::Void { .. } => "query answer: void",
        QueryAnswer::NotFound => "query answer: not found",
        QueryAnswer::NotListed { complete_until_ms: Some(_) } => "query answer: not listed until",
        QueryAnswer::NotListed { complete_until_ms: None } => "query answer: not listed",
        QueryAnswer::Ambiguous { .. } => "query answer: ambiguous",
        QueryAnswer::OurFault { .. } => "query answer: our fault",
        QueryAnswer::NoAnswer { .. } => "query answer: none",
    }
}

fn recall_answer(answer: &RecallAnswer) -> &'static str {
    match answer {
        RecallAnswer::Recalled => "recall answer: recalled",
        RecallAnswer::Refused { .. } => "recall answer: refused",
        RecallAnswer::RecallUnsupported => "recall answer: unsupported",
        RecallAnswer::Promised => "recall answer: promised",
        RecallAnswer::Pending => "recall answer: pending",
        RecallAnswer::NotReceived { .. } => "recall answer: not received",
        RecallAnswer::Unknown { .. } => "recall answer: unknown",
    }
}

pub(super) fn attempt_outcome(outcome: &AttemptOutcome) -> String {
    match outcome {
        AttemptOutcome::Submit(outcome) => match outcome {
            SubmitAttemptOutcome::Accepted => "submit attempt: accepted".into(),
            SubmitAttemptOutcome::Refused { .. } => "submit attempt: refused".into(),
            SubmitAttemptOutcome::Settled => "submit attempt: settled".into(),
            SubmitAttemptOutcome::NotSent(_) => "submit attempt: not sent".into(),
            SubmitAttemptOutcome::Unknown { .. } => "submit attempt: unknown".into(),
        },
        AttemptOutcome::Cancel(outcome) => match outcome {
            CancelAttemptOutcome::Void => "cancel attempt: void".into(),
            CancelAttemptOutcome::Settled => "cancel attempt: settled".into(),
            CancelAttemptOutcome::Differs => "cancel attempt: differs".into(),
            CancelAttemptOutcome::Undecidable(reason) => format!("cancel attempt: undecidable {reason}"),
            CancelAttemptOutcome::Ended(_) => "cancel attempt: ended".into(),
            CancelAttemptOutcome::Retry { not_before_ms: Some(_), .. } => {
                "cancel attempt: retry after the deadline".into()
            }
            CancelAttemptOutcome::Retry { alert: true, .. } => "cancel attempt: retry with an alert".into(),
            CancelAttemptOutcome::Retry { .. } => "cancel attempt: retry".into(),
        },
        AttemptOutcome::Recall(RecallAttemptOutcome::Decided(outcome)) => {
            format!("recall attempt: {}", recall(outcome))
        }
        AttemptOutcome::Recall(RecallAttemptOutcome::Retry { .. }) => "recall attempt: retry".into(),
        AttemptOutcome::Poll(outcome) => match outcome {
            PollOutcome::SuccessReported => "poll attempt: success".into(),
            PollOutcome::Differs => "poll attempt: differs".into(),
            PollOutcome::ReturnReported => "poll attempt: return".into(),
            PollOutcome::FailureReported { .. } => "poll attempt: failure".into(),
            PollOutcome::Retry { .. } => "poll attempt: retry".into(),
        },
        AttemptOutcome::Debit(outcome) => format!("debit attempt: {}", debit(outcome)),
        AttemptOutcome::ApplyDecision(outcome) => format!("decision attempt: {}", decision(outcome)),
    }
}
