//! What is written about a payment: read under its row's lock, judged by [`crate::rules`].

use serde::{Deserialize, Serialize};

use crate::cause::{Cause, ReserveRefusal};
use crate::ids::RunId;
use crate::state::{PaymentState, text_enum};

text_enum!(
    /// The first definite answer of the switch, written once, before money moves.
    FinalStatus {
        /// The transfer settled at the switch.
        Settled = "settled",
        /// The transfer can never settle at the switch.
        Void = "void",
    }
);

text_enum!(
    /// A hold: money set aside for one payment. Settled or released, never both.
    HoldStatus {
        /// Set aside.
        Open = "open",
        /// Debited.
        Settled = "debited",
        /// Given back.
        Released = "released",
    }
);

text_enum!(
    /// What is recorded under recall's key.
    RecallRecord {
        /// The switch gave the money back.
        Recalled = "recalled",
        /// The switch recorded that it will not.
        Refused = "refused",
        /// The switch has no recall, or has retention_expired the transfer.
        RecallUnsupported = "recall_unsupported",
    }
);

/// What is recorded under reserve's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReserveRecord {
    /// The amount was held.
    Held,
    /// It was refused, for good.
    Refused(ReserveRefusal),
}

/// Everything the rules look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The state outside.
    pub state: PaymentState,
    /// The run that reserved from the top; none until then.
    pub run_id: Option<RunId>,
    /// What is recorded under reserve's key.
    pub reserve: Option<ReserveRecord>,
    /// The hold, once made.
    pub hold: Option<HoldStatus>,
    /// Submit attempts recorded before they were sent.
    pub attempts: u32,
    /// Time since the first recorded attempt, by the database's clock, in milliseconds.
    pub first_attempt_age_ms: Option<u64>,
    /// The first cause that turned the payment round. While it is set no attempt goes out.
    pub cause: Option<Cause>,
    /// The switch's first definite answer.
    pub final_status: Option<FinalStatus>,
    /// A SUCCESS that differs from the payment is on record.
    pub confirmation_mismatch: bool,
    /// The switch reported SUCCESS although no attempt was on record: our record may be older than
    /// the truth (a restored database), so "nothing was ever sent" is not believed.
    pub reported_without_attempt: bool,
    /// Settle was refused for good, with this reason.
    pub debit_refused: Option<String>,
    /// What is recorded under recall's key.
    pub recall: Option<RecallRecord>,
    /// A customer's cancel is in the inbox.
    pub cancel_requested: bool,
    /// Another open payment has sent to the same account at a switch without client references: what would
    /// be read back might be its transfer.
    pub account_busy: bool,
}

impl Facts {
    /// A payment of which only the acceptance is written.
    #[must_use]
    pub fn accepted() -> Self {
        Self {
            state: PaymentState::Accepted,
            run_id: None,
            reserve: None,
            hold: None,
            attempts: 0,
            first_attempt_age_ms: None,
            cause: None,
            final_status: None,
            confirmation_mismatch: false,
            reported_without_attempt: false,
            debit_refused: None,
            recall: None,
            cancel_requested: false,
            account_busy: false,
        }
    }
}
