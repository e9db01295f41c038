//! The recorded facts of one payment: read under its row's lock, judged by [`crate::rules`].

use serde::{Deserialize, Serialize};

use crate::cause::{Cause, ReserveRefusal};
use crate::ids::RunId;
use crate::state::{PaymentState, text_enum};

text_enum!(
    /// The first definite answer of the switch, written before money moves. Only a return replaces it.
    FinalStatus {
        /// The transfer settled at the switch.
        Settled = "settled",
        /// The transfer can never settle at the switch.
        Void = "void",
        /// The transfer settled and the money came back, by our recall or by itself: the customer owes nothing.
        Returned = "returned",
    }
);

text_enum!(
    /// The status of a hold, the blocked amount of one payment. Debited or released, never both.
    HoldStatus {
        /// The amount is blocked.
        Open = "open",
        /// The customer was debited.
        Debited = "debited",
        /// The amount was released to the customer.
        Released = "released",
    }
);

text_enum!(
    /// The outcome recorded under recall's key.
    RecallRecord {
        /// The switch returned the money.
        Recalled = "recalled",
        /// The switch recorded that it will not return the money.
        Refused = "refused",
        /// The switch does not support recalls, or its retention of the transfer has expired.
        RecallUnsupported = "recall_unsupported",
    }
);

/// The outcome recorded under reserve's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReserveRecord {
    /// The amount was held.
    Held,
    /// The ledger refused permanently.
    Refused(ReserveRefusal),
}

/// Everything about one payment that the rules read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The payment's state.
    pub state: PaymentState,
    /// The first run, which reserved; `None` before reserve.
    pub run_id: Option<RunId>,
    /// The outcome recorded under reserve's key; `None` before reserve.
    pub reserve: Option<ReserveRecord>,
    /// The status of the hold; `None` if the amount was never held.
    pub hold: Option<HoldStatus>,
    /// Submit attempts; each is recorded before it is sent.
    pub attempts: u32,
    /// Queries of the transfer that were counted, at a switch that limits them.
    pub asks: u32,
    /// Time since the last counted query, by the database's clock, in milliseconds; `None` if none was counted.
    pub last_ask_age_ms: Option<u64>,
    /// Whether attempts may be missing from this record, because the database may have lost a commit: a workflow scheduled a
    /// submit of which no attempt is recorded, an answer arrived to an attempt without a record, or the database was restored.
    /// "Never sent" is then not believed.
    pub attempts_uncertain: bool,
    /// Time since the first recorded attempt, by the database's clock, in milliseconds; since the acceptance where attempts may
    /// be missing and none is recorded. `None` without attempts.
    pub first_attempt_age_ms: Option<u64>,
    /// The first cause for which the payment is compensated. While set, no attempt may be sent.
    pub cause: Option<Cause>,
    /// The switch's first definite answer.
    pub final_status: Option<FinalStatus>,
    /// Whether a SUCCESS that differs from the payment is recorded.
    pub confirmation_mismatch: bool,
    /// Whether the switch reported SUCCESS although no attempt was recorded: our database may have been restored from
    /// an older backup, so "never sent" is not trusted.
    pub reported_without_attempt: bool,
    /// Whether such a report was of a return: an answer that says settled may then be older than the return.
    pub returned_without_attempt: bool,
    /// Whether a callback says that the transfer settled or came back, and the profile requires that a query confirms it
    /// ([`crate::profile::ConfirmByQuery`]). The amount may differ from the payment's.
    pub report_to_confirm: bool,
    /// Whether such a callback says that it came back.
    pub return_to_confirm: bool,
    /// Whether a callback of the payment's own switch says that the transfer failed.
    pub failure_reported: bool,
    /// The ledger refused the debit permanently, for this reason.
    pub debit_refused: Option<String>,
    /// The outcome recorded under recall's key.
    pub recall: Option<RecallRecord>,
    /// Whether a customer's cancel request is in the inbox.
    pub cancel_requested: bool,
    /// Whether another open payment has sent to the same account at a switch without references: a transfer read back
    /// there might belong to the other payment.
    pub account_busy: bool,
    /// Whether the customer's account was restored by an advance of the bank. The bank then bears the hold.
    pub restored: bool,
    /// Whether a return is stored that waits for a charge. The switch had the transfer, whatever else is on record.
    pub has_unbooked_return: bool,
}

impl Facts {
    /// A payment that was only accepted.
    #[must_use]
    pub fn accepted() -> Self {
        Self {
            state: PaymentState::Accepted,
            run_id: None,
            reserve: None,
            hold: None,
            attempts: 0,
            asks: 0,
            last_ask_age_ms: None,
            attempts_uncertain: false,
            first_attempt_age_ms: None,
            cause: None,
            final_status: None,
            confirmation_mismatch: false,
            reported_without_attempt: false,
            returned_without_attempt: false,
            report_to_confirm: false,
            return_to_confirm: false,
            failure_reported: false,
            debit_refused: None,
            recall: None,
            cancel_requested: false,
            account_busy: false,
            restored: false,
            has_unbooked_return: false,
        }
    }

    /// These facts after `run` has reserved.
    #[must_use]
    pub fn held(&self, run: &RunId) -> Self {
        Self {
            state: PaymentState::Reserved,
            run_id: Some(run.clone()),
            reserve: Some(ReserveRecord::Held),
            hold: Some(HoldStatus::Open),
            ..self.clone()
        }
    }
}
