//! What people decide: who, why, on which evidence, who else agreed, and what came of it. The rows are
//! the audit trail and are never deleted.
//!
//! About a payment that stands before a person they are carried out by its workflow, which asks the switch first
//! ([`payment_protocol::decision`]); after the end, money moves only by corrections, each linked to an open
//! exception. What moves money needs two people.
//!
//! | file | question |
//! |---|---|
//! | [`propose`], [`confirm`] | who decided what? |
//! | [`apply_decision`] | how does a decided payment end? |
//! | [`correct`] | how does money move after the end? |
//! | [`charge`] | who bears a debit that no hold covers? |
//! | [`close_exception`] | how is an exception closed without money? |
//! | [`rows`] | how is a decision read and written? |

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

pub use refusal::DecisionRefused;
pub use rows::is_unseen;
pub use rows::said;
pub(crate) use rows::{of_payment, reopen_delivery};

text_enum!(
    /// How money moves after a payment's end. Each needs two people and an open exception of that payment.
    Correction {
        /// It left and was not debited: the customer is debited, else the claims account.
        LateDebit = "late_debit",
        /// It was debited and came back, or never left: whoever was debited gets it back.
        ReturnCredit = "return_credit",
        /// What the claims account bore is given up: it becomes a loss.
        WriteOff = "write_off",
    }
);

impl Correction {
    /// Whether it is right hangs on what became of the transfer: the switch is asked first, and evidence is needed.
    #[must_use]
    pub fn rests_on_the_switch(self) -> bool {
        matches!(self, Self::LateDebit | Self::ReturnCredit)
    }
}

text_enum!(
    /// How far a decision has come.
    DecisionStatus {
        /// Waits for a second person.
        Proposed = "proposed",
        /// To be carried out by the payment's workflow.
        Confirmed = "confirmed",
        /// Carried out.
        Done = "done",
        /// Not carried out, with the reason.
        Refused = "refused",
        /// Taken back before it was confirmed.
        Withdrawn = "withdrawn",
    }
);

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// About a payment that stands before a person.
    Standing(Action),
    /// After the end.
    Correction(Correction),
    /// An exception is closed, and no money moves.
    Close,
}

impl OperatorAction {
    /// The word in the table.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standing(action) => action.as_str(),
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
                .map(Self::Standing)
                .or_else(|| Correction::parse(text).map(Self::Correction)),
        }
    }

    /// Whether it needs a second person.
    #[must_use]
    pub fn moves_money(self) -> bool {
        match self {
            Self::Standing(action) => action.moves_money(),
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

/// A decision as it is on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionView {
    /// Its id; also that of the workflow Update.
    pub decision_id: DecisionId,
    /// About which payment; none for an exception of no payment of ours.
    pub payment_id: Option<String>,
    /// The exception it closes or corrects.
    pub exception_id: Option<i64>,
    /// What was decided.
    pub deed: OperatorAction,
    /// Why.
    pub reason: String,
    /// On which evidence.
    pub evidence: Option<String>,
    /// Who proposed it.
    pub proposed_by: String,
    /// When.
    pub proposed_at: Timestamp,
    /// Who confirmed it; the proposer where no second person is needed.
    pub confirmed_by: Option<String>,
    /// When.
    pub confirmed_at: Option<Timestamp>,
    /// Why.
    pub confirm_reason: Option<String>,
    /// How far it has come.
    pub status: DecisionStatus,
    /// What the payment's workflow made of it.
    pub outcome: Option<DecisionOutcome>,
    /// What came of it, in words.
    pub detail: Option<String>,
    /// When that was.
    pub closed_at: Option<Timestamp>,
}

/// A proposal that is on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// Its id.
    pub decision_id: DecisionId,
    /// Confirmed at once, since no money moves: deliver it. None while it waits for a second person.
    pub message: Option<InboxMessage>,
}

/// What follows from a confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// The payment's workflow carries it out: deliver it. The relay does otherwise.
    ToCarryOut(InboxMessage),
    /// A correction, made in the transaction of the confirmation.
    Corrected {
        /// What was booked, in words.
        detail: String,
    },
}

/// A decision that was not taken.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// Refused; nothing is written.
    #[error(transparent)]
    Refused(#[from] DecisionRefused),
    /// No outcome: repeat.
    #[error("the decision has no outcome; repeat it")]
    Ledger(#[from] LedgerError),
}

impl From<sqlx::Error> for DecideError {
    fn from(error: sqlx::Error) -> Self {
        Self::Ledger(error.into())
    }
}
