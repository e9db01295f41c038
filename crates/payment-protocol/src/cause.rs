//! Why a payment did not settle, and why one stands before a person.

use serde::{Deserialize, Serialize};

use crate::decision::Action;
use crate::payment::InvalidPayment;
use crate::state::{FinalState, text_enum};

/// The first cause that turned a payment round. It names the end and is what the workflow ends
/// with, whatever happens while the steps are undone (S0.14). Recorded in the payment row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Cause {
    /// Reserve ended without an answer and nothing was sent.
    #[error("reserve has no known outcome")]
    ReserveUnknown,
    /// The switch refused the submit (Path A).
    #[error("the switch refused the transfer: {reason}")]
    SubmitRefused {
        /// The switch's words.
        reason: String,
    },
    /// All attempts of submit together ran out of their budget (Path A).
    #[error("the switch gave no answer to the transfer within the budget")]
    SubmitUnknown,
    /// Our own ledger did not let an attempt go out.
    #[error("the transfer was not sent: {reason}")]
    NotSent {
        /// Which fence stopped it.
        reason: String,
    },
    /// The switch said FAILURE, which only leads to asking to cancel.
    #[error("the switch reported a failure: {reason}")]
    FailureReported {
        /// The switch's words.
        reason: String,
    },
    /// No confirmation within the SLA (Path B).
    #[error("the switch did not confirm within the SLA")]
    SlaExpired,
    /// The customer, or whoever cancelled the workflow, asked to cancel.
    #[error("the customer cancelled the payment")]
    CustomerCancel,
    /// The bank could not debit after the switch had settled, and the switch gave the money back
    /// (Path C).
    #[error("the bank could not debit the account: {reason}")]
    DebitRefused {
        /// Why the ledger refused.
        reason: String,
    },
    /// Two people decided to release, which asked the switch to cancel; whether it was released is the
    /// switch's answer, or theirs where it had none.
    #[error("two people decided to release the payment")]
    ReleasedByDecision,
    /// A person had the switch asked again, and nobody had asked it to cancel before.
    #[error("a person had the switch asked to cancel")]
    CancelRetriedByDecision,
    /// The workflow engine lost the run (terminated, reset, restored, retention_expired); the payment was
    /// taken up again and could not go on forward.
    #[error("the payment's workflow was interrupted and resumed")]
    Interrupted,
}

impl Cause {
    /// The end of a payment that was undone for this cause.
    #[must_use]
    pub fn end(&self) -> FinalState {
        match self {
            Self::SlaExpired => FinalState::TimedOut,
            Self::CustomerCancel => FinalState::Cancelled,
            Self::ReserveUnknown
            | Self::SubmitRefused { .. }
            | Self::SubmitUnknown
            | Self::NotSent { .. }
            | Self::FailureReported { .. }
            | Self::DebitRefused { .. }
            | Self::ReleasedByDecision
            | Self::CancelRetriedByDecision
            | Self::Interrupted => FinalState::Failed,
        }
    }

    /// Stable word for the API, metrics and the workflow's failure type.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::ReserveUnknown => "reserve_unknown",
            Self::SubmitRefused { .. } => "submit_refused",
            Self::SubmitUnknown => "submit_unknown",
            Self::NotSent { .. } => "not_sent",
            Self::FailureReported { .. } => "failure_reported",
            Self::SlaExpired => "sla_expired",
            Self::CustomerCancel => "customer_cancel",
            Self::DebitRefused { .. } => "debit_refused",
            Self::ReleasedByDecision => "released_by_decision",
            Self::CancelRetriedByDecision => "cancel_retried_by_decision",
            Self::Interrupted => "interrupted",
        }
    }
}

text_enum!(
    /// Why the ledger refused to hold the amount. Recorded under reserve's key; a repeat gets the
    /// same answer, even if funds have arrived since.
    ReserveRefusal {
        /// No such account for this tenant.
        UnknownAccount = "unknown_account",
        /// The account may not be debited now.
        FrozenAccount = "frozen_account",
        /// The account is kept in another currency.
        WrongCurrency = "wrong_currency",
        /// The available balance is below the amount.
        InsufficientFunds = "insufficient_funds",
        /// More than the account or its tenant may send with one payment or on one day.
        LimitExceeded = "limit_exceeded",
        /// Not started by `valid_until`: rejected, never sent late.
        StartedTooLate = "started_too_late",
        /// The customer cancelled before anything was held.
        CustomerCancel = "customer_cancel",
        /// The workflow found the payment not valid.
        Invalid = "invalid_payment",
        /// The reserve was fenced: the payment was already being undone when this attempt landed.
        Fenced = "fenced",
    }
);

impl ReserveRefusal {
    /// The end of a payment whose reserve was refused.
    #[must_use]
    pub fn end(self) -> FinalState {
        match self {
            Self::CustomerCancel => FinalState::Cancelled,
            Self::Fenced => FinalState::Failed,
            _ => FinalState::Rejected,
        }
    }
}

text_enum!(
    /// Why a payment stands in `needs_operator`.
    OperatorReason {
        /// The switch reported SUCCESS with another amount, currency, reference or name. A later
        /// matching answer still settles it.
        ConfirmationMismatch = "confirmation_mismatch",
        /// The switch's retention of references has passed: its answers prove nothing any more.
        SwitchRetentionExpired = "switch_retention_expired",
        /// Nothing was found and the profile has neither tombstone nor deadline to make that mean
        /// something.
        NotFoundIsInconclusive = "not_found_is_inconclusive",
        /// The profile offers neither cancel nor query; only a callback can move the payment.
        NoCancelOrQuery = "no_cancel_or_query",
        /// Path C: the switch recorded that it will not give the money back.
        RecallRefused = "recall_refused",
        /// Path C: the switch has no recall.
        RecallUnsupported = "recall_unsupported",
        /// An compensation failed for good.
        CompensationFailed = "compensation_failed",
        /// The switch settled a transfer of which no attempt is on record here.
        SettledWithoutAttempt = "settled_without_attempt",
        /// The workflow engine itself refused to start the payment, again and again.
        WorkflowStartRefused = "start_refused",
    }
);

impl OperatorReason {
    /// What people may decide. Everything that moves money asks the switch first.
    #[must_use]
    pub fn allowed(self) -> &'static [Action] {
        match self {
            Self::ConfirmationMismatch
            | Self::SwitchRetentionExpired
            | Self::NotFoundIsInconclusive
            | Self::SettledWithoutAttempt => &[Action::RetryCancel, Action::Debit, Action::Release],
            // Nobody could be asked again.
            Self::NoCancelOrQuery => &[Action::Debit, Action::Release],
            // The money left and stays away: only who bears it is open.
            Self::RecallRefused | Self::RecallUnsupported => &[Action::Debit],
            Self::CompensationFailed => &[Action::RetryCancel, Action::Release],
            // No workflow runs that could carry a decision; the starter tries again by itself.
            Self::WorkflowStartRefused => &[],
        }
    }

    /// Whether a matching SUCCESS can still move the payment. Where this is false the switch's word
    /// is already known, and only a person decides.
    #[must_use]
    pub fn follows_switch(self) -> bool {
        match self {
            Self::ConfirmationMismatch
            | Self::SwitchRetentionExpired
            | Self::NotFoundIsInconclusive
            | Self::NoCancelOrQuery
            | Self::WorkflowStartRefused => true,
            Self::RecallRefused
            | Self::RecallUnsupported
            | Self::CompensationFailed
            | Self::SettledWithoutAttempt => false,
        }
    }
}

/// What a payment ends with when it did not settle.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PaymentError {
    /// Not valid; nothing was called.
    #[error("the payment is not valid")]
    Invalid(#[source] InvalidPayment),
    /// The ledger refused to hold the amount; nothing was sent.
    #[error("reserve was refused: {0}")]
    ReserveRefused(ReserveRefusal),
    /// Turned round and undone.
    #[error("the payment was undone")]
    Compensated(#[source] Cause),
    /// The payment had already ended when this run looked; there was nothing to do.
    #[error("the payment had already ended: {0}")]
    AlreadyEnded(FinalState),
}

impl PaymentError {
    /// The end that goes with the error.
    #[must_use]
    pub fn end(&self) -> FinalState {
        match self {
            Self::Invalid(_) => FinalState::Rejected,
            Self::ReserveRefused(refusal) => refusal.end(),
            Self::Compensated(cause) => cause.end(),
            Self::AlreadyEnded(end) => *end,
        }
    }

    /// Stable word: the type of the workflow's failure.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid_payment",
            Self::ReserveRefused(refusal) => refusal.as_str(),
            Self::Compensated(cause) => cause.code(),
            Self::AlreadyEnded(_) => "already_ended",
        }
    }
}
