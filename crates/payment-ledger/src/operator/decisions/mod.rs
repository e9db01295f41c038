//! Operator decisions: who decided what, why, on which evidence, who approved, and the outcome. The rows are
//! the audit trail and are never deleted.
//!
//! A decision about an open payment is applied by its workflow, which asks the switch first
//! ([`payment_protocol::decision`]); after the end, money moves only by corrections, each linked to an open
//! exception. Every decision that moves money needs two operators (four-eyes).
//!
//! | file | question |
//! |---|---|
//! | [`propose`], [`confirm`] | How is a decision proposed and confirmed? |
//! | [`apply`] | How does a decision end its payment? |
//! | [`correct`] | How does money move after the end? |
//! | [`charge`] | Which account pays a debit without a hold? |
//! | [`close_exception`] | How is an exception closed without money? |
//! | [`rows`] | How is a decision read and written? |

mod apply;
mod charge;
mod close_exception;
mod confirm;
mod correct;
mod propose;
mod refusal;
mod rows;

use jiff::Timestamp;
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::ids::DecisionId;
use payment_protocol::inbox::InboxMessage;
use payment_protocol::text_enum;

use crate::LedgerError;

pub use refusal::DecisionRefusedError;
pub use rows::is_invisible;
pub use rows::validate_operator_and_reason;
pub(crate) use rows::{of_payment, reopen_delivery};

text_enum!(
    /// How money moves after a payment's end. Each needs two operators and an open exception of that payment.
    Correction {
        /// The money left and was not debited: debits the customer, else the claims account.
        LateDebit = "late_debit",
        /// The amount was debited, and the money came back or never left: credits the account that was debited.
        ReturnCredit = "return_credit",
        /// The bank gives up its claim: moves it from the claims account to the losses.
        WriteOff = "write_off",
    }
);

impl Correction {
    /// Whether evidence is required: the correction depends on how the transfer ended at the switch.
    #[must_use]
    pub fn needs_evidence(self) -> bool {
        matches!(self, Self::LateDebit | Self::ReturnCredit)
    }
}

text_enum!(
    /// Status of a decision.
    DecisionStatus {
        /// Awaits confirmation by a second operator.
        Proposed = "proposed",
        /// Confirmed; the payment's workflow applies it.
        Confirmed = "confirmed",
        /// Applied.
        Done = "done",
        /// Not applied; `detail` has the reason.
        Refused = "refused",
        /// Withdrawn before it was confirmed.
        Withdrawn = "withdrawn",
    }
);

/// The action of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// On an open payment that needs an operator.
    OpenPayment(Action),
    /// After the end.
    Correction(Correction),
    /// Close an exception without moving money.
    Close,
}

impl OperatorAction {
    /// The word in the table.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenPayment(action) => action.as_str(),
            Self::Correction(correction) => correction.as_str(),
            Self::Close => "close",
        }
    }

    /// Reads the word back; `None` for any other.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "close" => Some(Self::Close),
            text => Action::parse(text)
                .map(Self::OpenPayment)
                .or_else(|| Correction::parse(text).map(Self::Correction)),
        }
    }

    /// Whether a second operator must confirm it.
    #[must_use]
    pub fn moves_money(self) -> bool {
        match self {
            Self::OpenPayment(action) => action.moves_money(),
            Self::Correction(_) => true,
            Self::Close => false,
        }
    }
}

impl std::fmt::Display for OperatorAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A decision as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionView {
    /// Its id; also the id of the workflow update.
    pub decision_id: DecisionId,
    /// The payment; `None` for an exception without a payment.
    pub payment_id: Option<String>,
    /// The exception that it closes or corrects.
    pub exception_id: Option<i64>,
    /// The action.
    pub action: OperatorAction,
    /// The proposer's reason.
    pub reason: String,
    /// The evidence.
    pub evidence: Option<String>,
    /// The operator who proposed it.
    pub proposed_by: String,
    /// When it was proposed.
    pub proposed_at: Timestamp,
    /// The operator who confirmed it; the proposer if one operator suffices.
    pub confirmed_by: Option<String>,
    /// When it was confirmed.
    pub confirmed_at: Option<Timestamp>,
    /// The confirming operator's reason.
    pub confirm_reason: Option<String>,
    /// Its status.
    pub status: DecisionStatus,
    /// The outcome that the payment's workflow reported.
    pub outcome: Option<DecisionOutcome>,
    /// The outcome in words.
    pub detail: Option<String>,
    /// When it was closed.
    pub closed_at: Option<Timestamp>,
}

/// A recorded proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Its id.
    pub decision_id: DecisionId,
    /// The message to deliver, if no confirmation is needed; `None` while the proposal awaits one.
    pub message: Option<InboxMessage>,
}

/// Outcome of a confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfirmOutcome {
    /// The payment's workflow applies it: deliver the message, else the relay does.
    ToApply(InboxMessage),
    /// A correction, booked in the transaction of the confirmation.
    Corrected {
        /// Description of the posting.
        detail: String,
    },
}

/// A decision that was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// Refused; nothing was written.
    #[error(transparent)]
    Refused(#[from] DecisionRefusedError),
    /// The outcome is unknown: repeat.
    #[error("the ledger did not confirm whether the decision is recorded; repeat the decision")]
    Ledger(#[from] LedgerError),
}

impl From<sqlx::Error> for DecideError {
    fn from(error: sqlx::Error) -> Self {
        Self::Ledger(error.into())
    }
}
