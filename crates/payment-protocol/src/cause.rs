//! Why a payment did not settle, and why a payment needs an operator.

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::facts::FinalStatus;
use crate::payment::InvalidPayment;
use crate::state::{FinalState, text_enum};

/// The first cause for which a payment is compensated. Recorded in the payment row; names the final state and
/// is the workflow's error, whatever happens while the compensations run (S0.14).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Cause {
    /// Reserve ended without a known outcome, and nothing was sent.
    #[error("the ledger did not confirm that it reserved the amount")]
    ReserveUnknown,
    /// The switch refused the submit (Path A).
    #[error("the switch refused the transfer: {reason}")]
    SubmitRefused {
        /// The switch's words.
        reason: String,
    },
    /// The attempts of submit used up their time budget without an answer (Path A).
    #[error("the switch answered no submit of the transfer within the time budget")]
    SubmitUnknown,
    /// Our own ledger refused the attempt, so nothing was sent.
    #[error("the bank did not send the transfer to the switch: {reason}")]
    NotSent {
        /// Which rule of the ledger refused the attempt.
        reason: String,
    },
    /// The switch reported FAILURE, which only leads to a cancel.
    #[error("the switch reported that the transfer failed: {reason}")]
    FailureReported {
        /// The switch's words.
        reason: String,
    },
    /// The switch did not confirm within the SLA (Path B).
    #[error("the switch did not confirm the transfer within the SLA")]
    SlaExpired,
    /// The customer cancelled, or somebody cancelled the workflow.
    #[error("the customer cancelled the payment")]
    CustomerCancel,
    /// The bank could not debit after the switch had settled, and the switch returned the money (Path C).
    #[error("the bank could not debit the customer's account: {reason}")]
    DebitRefused {
        /// Why the ledger refused.
        reason: String,
    },
    /// The transfer settled, and the money came back before the customer was debited.
    #[error("the money came back from the receiving bank")]
    Returned,
    /// An approved decision released the payment, after a cancel at the switch. The switch's answer decides
    /// whether the payment is released; without an answer the decision does.
    #[error("operators decided to release the hold")]
    ReleasedByDecision,
    /// An operator retried the cancel of a payment that had not been cancelled before.
    #[error("an operator decided to cancel the transfer at the switch")]
    CancelRetriedByDecision,
    /// The workflow was lost (terminated, reset, restored, or its retention expired), and the recovery workflow
    /// could not continue forward.
    #[error("the payment's workflow ended unexpectedly; a recovery workflow continued the payment")]
    Interrupted,
}

impl Cause {
    /// The final state of a payment that was compensated for this cause.
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
            | Self::Returned
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
            Self::Returned => "returned",
            Self::ReleasedByDecision => "released_by_decision",
            Self::CancelRetriedByDecision => "cancel_retried_by_decision",
            Self::Interrupted => "interrupted",
        }
    }
}

text_enum!(
    /// Why the ledger refused to hold the amount. Recorded under reserve's key; a repeated reserve gets the same
    /// refusal, even if funds have arrived since.
    ReserveRefusal {
        /// The tenant has no such account.
        UnknownAccount = "unknown_account",
        /// The account may not be debited now.
        FrozenAccount = "frozen_account",
        /// The account has another currency.
        WrongCurrency = "wrong_currency",
        /// The available balance is below the amount.
        InsufficientFunds = "insufficient_funds",
        /// Over the limit of the account or its tenant, per payment or per day.
        LimitExceeded = "limit_exceeded",
        /// Not started by `valid_until`: rejected instead of sent late.
        StartedTooLate = "started_too_late",
        /// The customer cancelled before anything was held.
        CustomerCancel = "customer_cancel",
        /// The workflow found the payment invalid.
        Invalid = "invalid_payment",
        /// The reserve was fenced: the payment was being compensated when this attempt reached the ledger.
        Fenced = "fenced",
    }
);

impl ReserveRefusal {
    /// The final state of a payment whose reserve was refused.
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
    /// Why a payment is in `needs_operator`.
    OperatorReason {
        /// The switch reported SUCCESS with another amount, currency, reference or name. A later
        /// matching report still settles the payment.
        ConfirmationMismatch = "confirmation_mismatch",
        /// The switch's retention of references has expired without a decision of the switch: what it says now proves nothing any more.
        SwitchRetentionExpired = "switch_retention_expired",
        /// The switch does not know the transfer, and its profile has neither tombstones nor deadlines that
        /// would make this answer conclusive; or the transfer may be out by another id than the one on record.
        NotFoundIsInconclusive = "not_found_is_inconclusive",
        /// The profile offers neither cancel nor query; only a callback can move the payment.
        NoCancelOrQuery = "no_cancel_or_query",
        /// The switch answers no further query of the transfer, and no statement decides: its limit of queries, or their time, is
        /// used up.
        QueriesSpent = "queries_spent",
        /// Path C: the switch recorded that it will not return the money.
        RecallRefused = "recall_refused",
        /// Path C: the switch does not support recalls.
        RecallUnsupported = "recall_unsupported",
        /// A compensation failed permanently.
        CompensationFailed = "compensation_failed",
        /// The switch settled a transfer of which no attempt is recorded here.
        SettledWithoutAttempt = "settled_without_attempt",
        /// The switch accepted the transfer, and says now that it does not know it.
        AcceptedThenUnknown = "accepted_then_unknown",
        /// Several transfers of a switch without references may be this payment's.
        AmbiguousTransfer = "ambiguous_transfer",
        /// The money left, and the ledger has no hold to debit.
        SettledWithoutHold = "settled_without_hold",
        /// The database refused the debit for good.
        DebitFailed = "debit_failed",
        /// Temporal refused to start the payment's workflow repeatedly.
        WorkflowStartRefused = "start_refused",
    }
);

impl OperatorReason {
    /// The actions an operator may decide on. An action that moves money queries or cancels at the switch first.
    #[must_use]
    pub fn allowed(self) -> &'static [Action] {
        match self {
            Self::ConfirmationMismatch
            | Self::SwitchRetentionExpired
            | Self::NotFoundIsInconclusive
            | Self::AcceptedThenUnknown
            | Self::AmbiguousTransfer
            | Self::QueriesSpent
            | Self::SettledWithoutAttempt => &[Action::RetryCancel, Action::Debit, Action::Release],
            // The switch offers no cancel that could be retried.
            Self::NoCancelOrQuery => &[Action::Debit, Action::Release],
            // The money left and the switch does not return it: only the debit is open.
            Self::RecallRefused | Self::RecallUnsupported | Self::SettledWithoutHold => &[Action::Debit],
            // The retried cancel finds the transfer settled, and debits again.
            Self::DebitFailed => &[Action::RetryCancel, Action::Debit],
            Self::CompensationFailed => &[Action::RetryCancel, Action::Release],
            // No workflow runs that could apply a decision; the starter retries the start by itself.
            Self::WorkflowStartRefused => &[],
        }
    }

    /// Whether a matching SUCCESS can still move the payment. If false, the switch's final answer is already
    /// known, and only an operator decides.
    #[must_use]
    pub fn follows_switch(self) -> bool {
        match self {
            Self::ConfirmationMismatch
            | Self::SwitchRetentionExpired
            | Self::NotFoundIsInconclusive
            | Self::NoCancelOrQuery
            | Self::AcceptedThenUnknown
            | Self::AmbiguousTransfer
            | Self::QueriesSpent
            | Self::WorkflowStartRefused => true,
            Self::RecallRefused
            | Self::RecallUnsupported
            | Self::CompensationFailed
            | Self::SettledWithoutHold
            | Self::DebitFailed
            | Self::SettledWithoutAttempt => false,
        }
    }

    /// Whether a return can still move the payment. If false, only an operator's retry does.
    #[must_use]
    pub fn follows_return(self) -> bool {
        self != Self::CompensationFailed
    }

    /// Whether this final status moves the payment. One that does not is for operators alone: the database refused for good what follows
    /// from it, or the payment needs an operator because of it.
    #[must_use]
    pub fn follows(self, final_status: FinalStatus) -> bool {
        match final_status {
            FinalStatus::Returned => self.follows_return(),
            FinalStatus::Settled | FinalStatus::Void => self.follows_switch(),
        }
    }
}

/// The error of a payment that did not settle.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PaymentError {
    /// Invalid; nothing was called.
    #[error("the payment's transaction id or amount is invalid; the bank reserved and sent nothing")]
    Invalid(#[source] InvalidPayment),
    /// The ledger refused to hold the amount; nothing was sent.
    #[error("the ledger refused to reserve the amount in the customer's account: {0}")]
    ReserveRefused(ReserveRefusal),
    /// All completed steps were compensated.
    #[error("the payment did not settle and its completed steps were compensated")]
    Compensated(#[source] Cause),
    /// The payment had already ended when this run read it; the run did nothing.
    #[error("the payment had already ended in the state {0}; the workflow did nothing")]
    AlreadyEnded(FinalState),
    /// The workflow was started with a payment that is not the ledger's; the run did nothing but open an exception.
    #[error(
        "the workflow's payment differs from the ledger's; the workflow did nothing but open an exception"
    )]
    InputDiffers,
}

impl PaymentError {
    /// The final state that goes with the error; `None` if the run did not end the payment.
    #[must_use]
    pub fn end(&self) -> Option<FinalState> {
        match self {
            Self::Invalid(_) => Some(FinalState::Rejected),
            Self::ReserveRefused(refusal) => Some(refusal.end()),
            Self::Compensated(cause) => Some(cause.end()),
            Self::AlreadyEnded(end) => Some(*end),
            Self::InputDiffers => None,
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
            Self::InputDiffers => "input_differs",
        }
    }
}
