//! The calls, replies and events of a sequence in words, for a reader.

use std::fmt;

use payment_protocol::port::{AccountLockOutcome, CancelOutcome, WaitOutcome};

use crate::attempt::AttemptCall;
use crate::state::State;
use crate::switch::ClockPhase;
use crate::workflow::{PortCall, PortReply};

impl fmt::Display for PortCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reject => "reject the payment",
            Self::Reserve => "reserve",
            Self::Fence => "fence the reserve",
            Self::Submit => "submit",
            Self::Reconcile => "read our own record of the submit",
            Self::Lock => "lock the account",
            Self::Unlock => "unlock the account",
            Self::Cancel(..) => "cancel",
            Self::Debit => "debit",
            Self::Recall => "recall",
            Self::Release(_) => "release",
            Self::WaitWithinSla => "wait within the SLA",
            Self::WaitUntilEvent => "wait for an operator",
            Self::ApplyDecision(decision, ..) => {
                return write!(f, "apply the decision to {}", decision.action);
            }
            Self::NeedsOperator(reason) => return write!(f, "call an operator ({reason})"),
            Self::Alert => "alert an operator",
        })
    }
}

impl fmt::Display for AttemptCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Logged => "read the submission log",
            Self::RecordAttempt => "record the attempt",
            Self::RecordAnswer(..) => "record the answer",
            Self::RecordFound => "record that the switch has the transfer",
            Self::RecordSettled(_) => "record that the transfer settled",
            Self::RecordReturned(_) => "record that the money came back",
            Self::Begin => "record that the cancel begins",
            Self::RecordVoid(_) => "record that the transfer is void",
            Self::RecallRecorded => "read the record of the recall",
            Self::RecordRecall(_) => "record the answer to the recall",
            Self::DecisionRecorded => "read the outcome of the decision",
            Self::DebitByDecision => "debit by decision",
            Self::ReleaseByDecision => "release by decision",
            Self::CloseDecision(_) => "close the decision",
            Self::BeginQuery => "count the query",
            Self::BoundDeadline(_) => "bound the deadline of an unrecorded attempt",
            Self::NeedsQuery => "read whether the debit needs a query",
            Self::Debit(None) => "debit",
            Self::Debit(Some(_)) => "record that the transfer settled, and debit",
            Self::Send(_) => "send",
            Self::Cancel(..) => "cancel",
            Self::Query(_) => "query",
            Self::Statement(_) => "read the statement",
            Self::Recall(..) => "recall",
        })
    }
}

/// What the bank's books and the switch's book say, a line each.
pub(crate) fn books(state: &State) -> [String; 2] {
    let State { bank, switch, .. } = state;
    let journal = bank.journal;
    let mut booked = String::new();
    for (times, entry) in [
        (journal.reserve, "reserved"),
        (journal.debit, "debited"),
        (journal.release, "released"),
        (journal.late_debit, "debited late"),
        (journal.claim, "charged to the bank's claims"),
        (journal.return_credit, "credited back"),
        (journal.write_off, "written off"),
    ] {
        match times {
            0 => {}
            1 => booked += &format!(", {entry}"),
            _ => booked += &format!(", {entry} {times} times"),
        }
    }
    let transfers: Vec<&str> = switch.transfers.iter().map(|status| status.as_str()).collect();
    let transfers = if transfers.is_empty() { "no transfer".to_owned() } else { transfers.join(", ") };
    let tombstone = if switch.tombstone { ", a tombstone" } else { "" };
    [
        format!("the bank's books: {}{booked}", bank.state),
        format!("the switch's book: {transfers}{tombstone}"),
    ]
}

/// One call and what came of it; a call of our ledger that just succeeds needs no more words.
pub(crate) struct CallAndResult<'a>(pub(crate) &'a AttemptCall, pub(crate) &'static str);

impl fmt::Display for CallAndResult<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(call, result) = self;
        if result.is_empty() { write!(f, "{call}") } else { write!(f, "{call}: {result}") }
    }
}

/// An event that a workflow waits for.
pub(crate) fn event(event: &WaitOutcome) -> String {
    match event {
        WaitOutcome::SuccessReported => "the switch reported SUCCESS".into(),
        WaitOutcome::FailureReported { .. } => "the switch reported FAILURE".into(),
        WaitOutcome::FinalStatusRecorded => "a definite answer of the switch is recorded".into(),
        WaitOutcome::CustomerCancel => "the customer cancels".into(),
        WaitOutcome::SlaExpired => "the SLA has expired".into(),
        WaitOutcome::Decided(decision) => format!("operators decided: {}", decision.action),
        WaitOutcome::OperatorCallDue => "an operator is called again".into(),
    }
}

/// An event that a workflow handles.
pub(crate) fn handled(reply: &PortReply) -> String {
    match reply {
        PortReply::Wait(outcome) => event(outcome),
        PortReply::Cancel(CancelOutcome::SuccessReported) => event(&WaitOutcome::SuccessReported),
        PortReply::Lock(AccountLockOutcome::CustomerCancel) => event(&WaitOutcome::CustomerCancel),
        other => format!("{other:?}"),
    }
}

impl fmt::Display for ClockPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeDeadline => "a time before submit's deadline",
            Self::WithinSkew => "submit's deadline on some of the switch's clocks",
            Self::AfterDeadline => "submit's deadline on all of the switch's clocks",
            Self::AfterRetention => "the end of the switch's retention",
        })
    }
}
