//! Why a decision is refused, and what to do instead.

use payment_protocol::PaymentState;
use payment_protocol::action::Correction;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::Action;
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::state::FinalState;

use super::DecisionStatus;

/// A refused decision; nothing is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecisionRefusedError {
    /// The audit trail needs an operator.
    #[error("the operator's name is missing; give the name of the operator who acts")]
    MissingOperator,
    /// A name that could be mistaken for another.
    #[error("the operator's name is invalid; use 1 to 64 ASCII letters, digits, spaces and . _ - @")]
    InvalidOperator,
    /// A text over the limit.
    #[error("{0} is longer than {max} characters; shorten the text", max = super::rows::TEXT_MAX)]
    TooLong(&'static str),
    /// A text with invisible characters.
    #[error("{0} has invisible characters; remove these characters")]
    InvisibleCharacters(&'static str),
    /// The audit trail needs a reason.
    #[error("the reason is missing; state why the operator acts, for the audit trail")]
    MissingReason,
    /// Debit and release by decision need evidence.
    #[error("the decision {0} needs evidence; state how the transfer ended and where the proof is stored")]
    MissingEvidence(Action),
    /// A correction that depends on the switch needs evidence.
    #[error("the decision {0} needs evidence; state how the transfer ended and where the proof is stored")]
    MissingCorrectionEvidence(Correction),
    /// Closing the exception would leave the amount on the claims account.
    #[error(
        "exception {0} cannot be closed while its payment's amount is on the bank's claims account; decide late_debit, write_off or return_credit, which closes the exception"
    )]
    OnClaimsAccount(i64),
    /// No such payment.
    #[error("the ledger has no payment {0}; check the payment id")]
    UnknownPayment(PaymentId),
    /// No such decision.
    #[error("the ledger has no operator decision {0}; check the decision id")]
    UnknownDecision(DecisionId),
    /// No such exception.
    #[error("the ledger has no exception {0}; check the number with payctl exceptions")]
    UnknownException(i64),
    /// The payment has ended.
    #[error(
        "the payment has ended as {0}; only a correction of one of the payment's open exceptions (payctl exceptions) can move money"
    )]
    Ended(FinalState),
    /// The payment does not need an operator.
    #[error(
        "the payment is in the state {0} and does not need an operator; operators decide only about payments in the state needs_operator"
    )]
    NotWaiting(PaymentState),
    /// The operator reason does not allow the action.
    #[error("the action {action} is not allowed for a payment that needs an operator because of {reason}; allowed actions: {}", action_list(reason.allowed()))]
    ActionNotAllowed {
        /// The action.
        action: Action,
        /// The operator reason.
        reason: OperatorReason,
    },
    /// A payment has one open decision at a time.
    #[error(
        "the earlier decision {0} about this payment is still open; confirm or withdraw that decision first"
    )]
    AnotherDecisionOpen(DecisionId),
    /// Four-eyes: the proposing operator cannot confirm.
    #[error("operator {0} proposed this decision; another operator must confirm the decision")]
    SameOperator(String),
    /// The operator who proposed it was disabled, or lost the role.
    #[error(
        "operator {0}, who proposed this decision, may not propose any more; withdraw the decision, and propose it again if it is right"
    )]
    ProposerBarred(String),
    /// Nobody has looked at it for long.
    #[error(
        "the proposal is older than 7 days; withdraw the decision, and propose it again if it is still right"
    )]
    TooOld,
    /// Another operator confirmed it first.
    #[error("operator {0} has already confirmed this decision; no further confirmation is needed")]
    AlreadyConfirmed(String),
    /// The decision is closed.
    #[error("the decision is {0} and can no longer change; propose the action again if it is still needed")]
    Closed(DecisionStatus),
    /// The decision is confirmed and may have been applied.
    #[error(
        "the decision is confirmed and cannot be withdrawn; wait until the payment's workflow applies or refuses it"
    )]
    AlreadyApplying,
    /// An earlier decision closed the exception.
    #[error("exception {0} was closed by an earlier decision; nothing is left to decide")]
    ExceptionClosed(i64),
    /// The exception has no payment.
    #[error("exception {0} has no payment to correct; an operator can only close the exception")]
    WithoutPayment(i64),
    /// The exception protects an open payment.
    #[error(
        "the payment of the exception is still open in the state {0}; decide about the payment, not about the exception"
    )]
    PaymentOpen(PaymentState),
    /// Late debit of a returned payment.
    #[error(
        "the money of the payment came back, so there is nothing to debit; close the exception, or open one with payctl decide open-exception if the switch reported the return in error and says so today"
    )]
    MoneyReturned,
    /// Late debit of a debited payment.
    #[error(
        "the payment was already debited, so a late_debit would charge it twice; decide return_credit or close the exception"
    )]
    AlreadyDebited,
    /// Return credit of a payment that was not debited.
    #[error(
        "the payment was not debited, so there is no amount for a return_credit; decide late_debit or close the exception"
    )]
    NotDebited,
    /// A second return credit.
    #[error(
        "the debited amount of the payment was already returned, so a second return_credit is not possible; close the exception"
    )]
    AlreadyReturned,
    /// Write-off without an amount on the claims account.
    #[error(
        "no amount of this payment is on the bank's claims account, so there is nothing to write off; decide another correction or close the exception"
    )]
    NothingOnClaims,
    /// Late debit of a claim that the account cannot pay.
    #[error(
        "the bank's claim cannot be collected from the customer's account now ({0}); decide late_debit again later, or write_off"
    )]
    NotCollectable(String),
}

fn action_list(actions: &[Action]) -> String {
    if actions.is_empty() {
        return "none, because the service continues the payment by itself".into();
    }
    actions.iter().map(|action| action.as_str()).collect::<Vec<_>>().join(", ")
}
