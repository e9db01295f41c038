//! What a switch says of a transfer, and the ONE place where SUCCESS is compared with the payment.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::SwitchName;
use crate::keys::Reference;
use crate::money::Money;
use crate::payment::Payment;
use crate::state::text_enum;

/// The switch says that a transfer settled: by callback, by query, or in answer to a cancel. All
/// three mean the same. The fields are the switch's words, not yet compared with anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SettledReport {
    /// Which switch said it (by whose secret or address it came).
    pub switch: SwitchName,
    /// The reference it named.
    pub reference: String,
    /// The amount it named, in minor units.
    pub amount_minor: i64,
    /// The currency it named.
    pub currency: String,
}

text_enum!(
    /// How a transfer ended at the switch, in the switch's words. A recalled one was settled before.
    LineStatus {
        /// The money left.
        Settled = "SETTLED",
        /// Refused by whom it went to.
        Rejected = "REJECTED",
        /// Cancelled before it settled.
        Cancelled = "CANCELLED",
        /// Settled, and given back.
        Recalled = "RECALLED",
    }
);

/// One line of a switch's statement: one end of a transfer. A recalled one has two, its settlement, then its return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementLine {
    /// Its place in the statement, as the switch names it.
    pub cursor: String,
    /// What the switch calls the transfer.
    pub transfer_id: String,
    /// Our reference; none from a switch without references.
    pub reference: Option<String>,
    /// How it ended.
    pub status: LineStatus,
    /// How much, in minor units.
    pub amount_minor: i64,
    /// ISO 4217 code, as the switch wrote it.
    pub currency: String,
    /// When it ended, by the switch's clock.
    pub finished_at: Timestamp,
}

text_enum!(
    /// The first field of a report that is not the payment's.
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

/// What a payment's own row says a report must say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expected {
    /// The switch it was routed to.
    pub switch: SwitchName,
    /// Its reference.
    pub reference: Reference,
    /// What is sent.
    pub money: Money,
}

impl From<&Payment> for Expected {
    fn from(payment: &Payment) -> Self {
        Self { switch: payment.profile.switch.clone(), reference: payment.reference(), money: payment.money }
    }
}

/// Compares a report with the payment. Nothing else in the service decides whether a SUCCESS is
/// this payment's.
///
/// # Errors
/// The first [`Difference`].
pub fn compare(expected: &Expected, report: &SettledReport) -> Result<(), Difference> {
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
