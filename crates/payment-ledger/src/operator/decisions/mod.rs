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
//! | [`open_exception`] | How does an operator open an exception? |
//! | [`close_exception`] | How is an exception closed without money? |
//! | [`rows`] | How is a decision read and written? |

mod apply;
mod charge;
mod close_exception;
mod confirm;
mod correct;
mod open_exception;
mod propose;
mod refusal;
mod rows;

use jiff::Timestamp;
use payment_protocol::action::OperatorAction;
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::ids::DecisionId;
use payment_protocol::inbox::InboxMessage;
use payment_protocol::text_enum;

use crate::LedgerError;

pub use refusal::DecisionRefusedError;
pub use rows::is_invisible;
pub use rows::validate_operator_name;
pub(crate) use rows::{of_payment, reopen_delivery, validate_reason};

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

impl DecisionView {
    /// The result in words; `None` while the decision is open. That of a debit names the account that was debited.
    #[must_use]
    pub fn result(&self) -> Option<String> {
        self.closed_at?;
        let detail = self.detail.clone().unwrap_or_default();
        Some(match &self.outcome {
            None => detail,
            Some(DecisionOutcome::Settled) => format!("applied: {detail}, the payment is settled"),
            Some(DecisionOutcome::Released(cause)) => {
                format!("applied: released, nothing is charged; cause: {cause}")
            }
            Some(DecisionOutcome::RetryCancel) => "applied: the cancel is sent to the switch again".into(),
            Some(DecisionOutcome::FinalStatus(reported)) => {
                format!(
                    "superseded: the switch reported the final status {reported}, which the payment follows"
                )
            }
            Some(DecisionOutcome::Refused { detail }) => format!("refused: {detail}"),
            Some(DecisionOutcome::Ended(end)) => {
                format!("refused: the payment had ended before, final state {end}")
            }
        })
    }
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
    /// No outcome. After [`LedgerError::Unavailable`] the decision may be recorded: repeat it.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<sqlx::Error> for DecideError {
    fn from(error: sqlx::Error) -> Self {
        Self::Ledger(error.into())
    }
}
