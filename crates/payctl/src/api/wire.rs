//! The API's documents, as far as they are shown. A server may send more.

use jiff::Timestamp;
use payment_protocol::PaymentState;
use payment_protocol::ids::PaymentId;
use serde::{Deserialize, Serialize};

/// What is asked for. The amount goes out as the person wrote it: the API judges it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Order<'a> {
    /// Decimal in major units.
    pub(crate) amount: &'a str,
    /// ISO 4217 code.
    pub(crate) currency: &'a str,
    /// The account that is charged.
    pub(crate) source_account: &'a str,
    /// The account that is paid.
    pub(crate) destination_account: &'a str,
}

/// The acceptance of a payment.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Accepted {
    pub(crate) payment_id: PaymentId,
    pub(crate) amount: String,
    pub(crate) currency: String,
    pub(crate) source_account: String,
    pub(crate) destination_account: String,
}

/// A payment as it stands, and what happened to it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Payment {
    pub(crate) payment_id: PaymentId,
    pub(crate) transaction_id: String,
    pub(crate) status: PaymentState,
    pub(crate) amount: String,
    pub(crate) currency: String,
    pub(crate) source_account: String,
    pub(crate) destination_account: String,
    pub(crate) end_to_end_id: Option<String>,
    pub(crate) switch: String,
    /// Why it did not settle, or is being turned round.
    pub(crate) reason: Option<String>,
    /// Why it waits for a person.
    pub(crate) operator_reason: Option<String>,
    pub(crate) workflow_id: String,
    pub(crate) created_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    /// Oldest first.
    pub(crate) timeline: Vec<Step>,
    /// Oldest first; an older server has none.
    #[serde(default)]
    pub(crate) notifications: Vec<Told>,
}

/// One line of a payment's timeline.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Step {
    /// The state it was in or went to.
    pub(crate) status: String,
    /// What happened.
    pub(crate) detail: String,
    /// By the database's clock.
    pub(crate) at: Timestamp,
}

/// A message to the customer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Told {
    /// In words.
    pub(crate) message: String,
    /// By the database's clock.
    pub(crate) at: Timestamp,
}

/// An account as it stands; decimals in major units.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Account {
    pub(crate) currency: String,
    pub(crate) available: String,
    pub(crate) held: String,
}

/// RFC 9457, as far as it is shown.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ProblemDocument {
    pub(super) code: Option<String>,
    pub(super) title: Option<String>,
    pub(super) detail: Option<String>,
}
