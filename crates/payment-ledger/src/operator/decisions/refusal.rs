//! Why a decision is not taken, in words that say what to do instead.

use payment_protocol::PaymentState;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::Action;
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::state::FinalState;

use super::{Correction, DecisionStatus};

/// A decision that is not taken; nothing is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecisionRefused {
    /// Nobody answers for it.
    #[error("no name is given: say who decides")]
    NoName,
    /// A name that could look like another.
    #[error("a name is 1 to 64 letters, digits and . _ - @ of ASCII, as a login has")]
    BadName,
    /// More than anybody reads.
    #[error("{0} is longer than {max} characters", max = super::rows::WORDS_MAX)]
    TooLong(&'static str),
    /// Text that hides something.
    #[error("{0} has characters that nobody sees: write it without")]
    Hidden(&'static str),
    /// The audit trail would say nothing.
    #[error("no reason is given: say why")]
    NoReason,
    /// Settling and releasing stand on what people know.
    #[error("{0} needs evidence: say what shows how the transfer ended, and where it is kept")]
    NoEvidence(Action),
    /// A correction that moves a customer's money stands on what people know.
    #[error("{0} needs evidence: say what shows how the transfer ended, and where it is kept")]
    CorrectionWithoutEvidence(Correction),
    /// Closing it would leave money where it is not to stay.
    #[error(
        "the claims account bears the payment of exception {0}: write it off or give it back, which closes it"
    )]
    BornByClaims(i64),
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
    #[error("the payment has ended: {0}; money moves now only by a correction of one of its open exceptions")]
    Ended(FinalState),
    /// The payment does not stand before a person.
    #[error("the payment is {0} and moves by itself: nothing is to be decided")]
    NotStanding(PaymentState),
    /// Not for this reason.
    #[error("{action} is not allowed while it stands for {reason}; allowed: {}", words(reason.allowed()))]
    NotAllowed {
        /// What was wanted.
        action: Action,
        /// Why it stands.
        reason: OperatorReason,
    },
    /// One thing at a time.
    #[error("decision {0} about this payment is open: let it be confirmed, carried out or withdrawn first")]
    AnotherIsOpen(DecisionId),
    /// Two people are two people.
    #[error("{0} proposed it: another person must confirm")]
    SamePerson(String),
    /// Somebody was quicker.
    #[error("{0} has confirmed it: there is nothing left to do")]
    AlreadyConfirmed(String),
    /// It is over.
    #[error("the decision is {0}: propose it anew if it is still right")]
    Closed(DecisionStatus),
    /// It is under way and may have been carried out.
    #[error("the decision is confirmed and being carried out: it can not be withdrawn")]
    UnderWay,
    /// A decision about it was carried out before.
    #[error("exception {0} is closed: nothing is left to be decided about it")]
    ExceptionClosed(i64),
    /// It names no payment of ours.
    #[error("exception {0} is of no payment of ours: it can only be closed")]
    NoPayment(i64),
    /// The exception is what keeps an open payment from moving wrongly.
    #[error("the payment is still open: {0}; decide about the payment, not about its exception")]
    StillOpen(PaymentState),
    /// Late debit of what was debited.
    #[error("the payment was debited already: it is not debited twice")]
    AlreadyDebited,
    /// Return of what was never debited.
    #[error("the payment was not debited: there is nothing to give back")]
    NotDebited,
    /// Returned before.
    #[error("what was debited has been given back already")]
    AlreadyReturned,
    /// Write-off of what is not there.
    #[error("the claims account bears nothing of this payment: there is nothing to write off")]
    NothingOnClaims,
}

fn words(actions: &[Action]) -> String {
    if actions.is_empty() {
        return "nothing, it moves by itself".into();
    }
    actions.iter().map(|action| action.as_str()).collect::<Vec<_>>().join(", ")
}
