//! Reports of a switch about a transfer, and the only comparison of a SUCCESS with its payment.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{ReturnId, SwitchName};
use crate::inbox::CallbackStatus;
use crate::keys::Reference;
use crate::money::Money;
use crate::payment::Payment;
use crate::recall::RecallReport;
use crate::returns::{Posting, PostingReport, ReturnReport};
use crate::state::text_enum;

/// The switch reports that a transfer settled, or that it settled and was returned: by callback, by query, or in its
/// answer to a cancel. All three have the same meaning. The fields are the switch's words, not yet compared with the payment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SettledReport {
    /// The switch that sent the report, known by its secret or its address.
    pub switch: SwitchName,
    /// The reported reference.
    pub reference: String,
    /// The reported amount, in minor units.
    pub amount_minor: i64,
    /// The reported currency.
    pub currency: String,
}

/// A report of a transfer's end that a switch sends by itself, in the switch's words: authentic, and not yet compared with anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingReport {
    /// The reported reference.
    pub reference: String,
    /// How the transfer ended.
    pub status: CallbackStatus,
    /// The reported amount, in minor units.
    pub amount_minor: i64,
    /// The reported currency.
    pub currency: String,
    /// The switch's reason, usually for a failure.
    pub reason: Option<String>,
    /// The code of the reason, if the switch's rejects have codes.
    pub reason_code: Option<String>,
    /// Where the money of a SUCCESS is at the receiving bank, if the switch says so.
    pub posting: Option<Posting>,
}

/// What a switch reports by itself about a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// How the transfer ended.
    End(IncomingReport),
    /// Money of the transfer comes back.
    Return(ReturnReport),
    /// Where the money of the settled transfer is; it moves none.
    Posting(PostingReport),
    /// The answer to a recall; it moves no money.
    Recall(RecallReport),
}

text_enum!(
    /// How a transfer ended at the switch, in the switch's words. A returned transfer had settled before.
    LineStatus {
        /// The money left.
        Settled = "SETTLED",
        /// The receiving bank refused the transfer.
        Rejected = "REJECTED",
        /// The transfer was cancelled before it settled.
        Cancelled = "CANCELLED",
        /// The transfer settled, and the money came back: recalled by us, or returned by the receiving bank.
        Returned = "RETURNED",
    }
);

/// One line of a switch's statement: one end of a transfer. A returned transfer has its settlement and its return, or its returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementLine {
    /// The line's position in the statement, as the switch names it.
    pub cursor: String,
    /// The switch's id of the transfer.
    pub transfer_id: String,
    /// Our reference; `None` from a switch without references.
    pub reference: Option<String>,
    /// How the transfer ended.
    pub status: LineStatus,
    /// The switch's id of the return, if this line is one return of its own and not the return of the whole transfer.
    pub return_id: Option<ReturnId>,
    /// The amount, in minor units.
    pub amount_minor: i64,
    /// ISO 4217 code, as the switch wrote it.
    pub currency: String,
    /// When the transfer ended, by the switch's clock.
    pub finished_at: Timestamp,
}

text_enum!(
    /// The first field of a report that differs from the payment.
    Difference {
        /// Another switch than the payment was routed to.
        Switch = "switch",
        /// Another reference.
        Reference = "reference",
        /// Another amount.
        Amount = "amount",
        /// Another currency.
        Currency = "currency",
    }
);

/// The transfer that a report must describe, according to the payment's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExpectedTransfer {
    /// The switch that the payment was routed to.
    pub switch: SwitchName,
    /// The payment's reference.
    pub reference: Reference,
    /// The amount that is sent.
    pub money: Money,
}

impl From<&Payment> for ExpectedTransfer {
    fn from(payment: &Payment) -> Self {
        Self { switch: payment.profile.switch.clone(), reference: payment.reference(), money: payment.money }
    }
}

/// Compares a report with the payment. Nothing else in the service decides whether a SUCCESS belongs to a
/// payment.
///
/// # Errors
/// The first [`Difference`].
pub fn compare(expected: &ExpectedTransfer, report: &SettledReport) -> Result<(), Difference> {
    if report.switch != expected.switch {
        return Err(Difference::Switch);
    }
    if report.reference != expected.reference.as_str() {
        return Err(Difference::Reference);
    }
    if report.amount_minor != expected.money.amount_minor() {
        return Err(Difference::Amount);
    }
    if report.currency != expected.money.currency().code() {
        return Err(Difference::Currency);
    }
    Ok(())
}
