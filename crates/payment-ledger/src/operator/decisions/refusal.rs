//! Why a decision is refused, and what to do instead.

use payment_protocol::PaymentState;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::Action;
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::state::FinalState;

use super::{Correction, DecisionStatus};

/// A refused decision; nothing is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecisionRefusedError {
    /// The audit trail needs an operator.
    #[error("the operator's name is missing")]
    MissingOperator,
    /// A name that could be mistaken for another.
    #[error("a name is 1 to 64 letters, digits, spaces and . _ - @ of ASCII")]
    InvalidOperator,
    /// A text over the limit.
    #[error("{0} is longer than {max} characters", max = super::rows::TEXT_MAX)]
    TooLong(&'static str),
    /// A text with invisible characters.
    #[error("{0} has invisible characters: remove them")]
    InvisibleCharacters(&'static str),
    /// The audit trail needs a reason.
    #[error("the reason is missing")]
    MissingReason,
    /// Debit and release by decision need evidence.
    #[error("{0} needs evidence of how the transfer ended, and where it is stored")]
    MissingEvidence(Action),
    /// A correction that depends on the switch needs evidence.
    #[error("{0} needs evidence of how the transfer ended, and where it is stored")]
    MissingCorrectionEvidence(Correction),
    /// Closing it would leave the amount on the claims account.
    #[error(
        "the payment of exception {0} is on the claims account: a write_off or return_credit closes the exception"
    )]
    OnClaimsAccount(i64),
    /// No such payment.
    #[error("there is no payment {0}")]
    UnknownPayment(PaymentId),
    /// No such decision.
    #[error("there is no decision {0}")]
    UnknownDecision(DecisionId),
    /// No such exception.
    #[error("there is no exception {0}")]
    UnknownException(i64),
    /// The payment has ended.
    #[error("the payment has ended as {0}: only a correction of one of its open exceptions can move money")]
    Ended(FinalState),
    /// The payment does not need an operator.
    #[error("the payment is {0} and does not need an operator")]
    NotWaiting(PaymentState),
    /// The operator reason does not allow the action.
    #[error("{action} is not allowed for the operator reason {reason}; allowed: {}", action_list(reason.allowed()))]
    ActionNotAllowed {
        /// The action.
        action: Action,
        /// The operator reason.
        reason: OperatorReason,
    },
    /// A payment has one open decision at a time.
    #[error("decision {0} on this payment is open: confirm or withdraw it first")]
    AnotherDecisionOpen(DecisionId),
    /// Four-eyes: the confirming operator is another person.
    #[error("{0} proposed the decision: another person must confirm it")]
    SameOperator(String),
    /// Another operator confirmed it first.
    #[error("{0} has already confirmed the decision")]
    AlreadyConfirmed(String),
    /// The decision is closed.
    #[error("the decision is {0}: propose it again if it is still needed")]
    Closed(DecisionStatus),
    /// It is confirmed and may have been applied.
    #[error("the decision is confirmed and cannot be withdrawn")]
    AlreadyApplying,
    /// An earlier decision closed the exception.
    #[error("exception {0} is already closed")]
    ExceptionClosed(i64),
    /// The exception has no payment.
    #[error("exception {0} has no payment: it can only be closed")]
    WithoutPayment(i64),
    /// The exception protects an open payment.
    #[error("the payment is still open as {0}: decide on the payment, not on its exception")]
    PaymentOpen(PaymentState),
    /// Late debit of a debited payment.
    #[error("the payment is already debited")]
    AlreadyDebited,
    /// Return credit of a payment that was not debited.
    #[error("the payment was not debited: there is nothing to return")]
    NotDebited,
    /// A second return credit.
    #[error("the debit has already been returned")]
    AlreadyReturned,
    /// Write-off without an amount on the claims account.
    #[error("the claims account holds nothing of this payment: there is nothing to write off")]
    NothingOnClaims,
}

fn action_list(actions: &[Action]) -> String {
    if actions.is_empty() {
        return "none, the service continues the payment".into();
    }
    actions.iter().map(|action| action.as_str()).collect::<Vec<_>>().join(", ")
}
