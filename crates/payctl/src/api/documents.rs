//! The API's JSON documents, restricted to the fields that payctl shows. Unknown fields are ignored.

use jiff::Timestamp;
use payment_ledger::events::EventKind;
use payment_protocol::PaymentState;
use payment_protocol::ids::PaymentId;
use serde::{Deserialize, Serialize};

/// Body of a payment request. The API validates the amount, so it is sent as typed.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PaymentRequest<'a> {
    /// Decimal in major units.
    pub(crate) amount: &'a str,
    /// ISO 4217 code.
    pub(crate) currency: &'a str,
    /// Account to charge.
    pub(crate) source_account: &'a str,
    /// Account to pay.
    pub(crate) destination_account: &'a str,
}

/// The API's acceptance of a payment request.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PaymentAcceptance {
    pub(crate) payment_id: PaymentId,
    pub(crate) amount: String,
    pub(crate) currency: String,
    pub(crate) source_account: String,
    pub(crate) destination_account: String,
}

/// A payment with its timeline.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PaymentDocument {
    pub(crate) payment_id: PaymentId,
    pub(crate) transaction_id: String,
    pub(crate) status: PaymentState,
    pub(crate) amount: String,
    pub(crate) currency: String,
    pub(crate) source_account: String,
    pub(crate) destination_account: String,
    pub(crate) end_to_end_id: Option<String>,
    pub(crate) switch: String,
    /// Why the payment did not settle or is being compensated.
    pub(crate) reason: Option<String>,
    /// What came back of a settled payment, in minor units.
    #[serde(default)]
    pub(crate) returned_minor: i64,
    /// When the amount became available to the payer again without a confirmation.
    pub(crate) restored_at: Option<Timestamp>,
    pub(crate) created_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    /// Oldest first.
    pub(crate) timeline: Vec<TimelineStep>,
    /// Oldest first; empty if the server is older than this field.
    #[serde(default)]
    pub(crate) notifications: Vec<NotificationDocument>,
}

/// One line of a payment's timeline.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TimelineStep {
    /// The payment's state after the event.
    pub(crate) status: String,
    /// The event, in words.
    pub(crate) detail: String,
    /// Time of the event, by the database's clock.
    pub(crate) at: Timestamp,
}

/// A notification of the customer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NotificationDocument {
    /// Text for the customer.
    pub(crate) message: String,
    /// Time of the notification, by the database's clock.
    pub(crate) at: Timestamp,
}

/// A webhook endpoint to create.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WebhookEndpointRequest<'a> {
    /// URL that receives the events.
    pub(crate) url: &'a str,
    /// Kinds of events; empty for all.
    pub(crate) kinds: &'a [EventKind],
}

/// A created webhook endpoint. No `Debug`: it holds a secret.
#[derive(Clone, Deserialize)]
pub(crate) struct WebhookEndpointDocument {
    pub(crate) endpoint_id: String,
    /// Signs the events; `whsec_..`.
    pub(crate) secret: String,
}

/// An account's balances; decimals in major units.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AccountDocument {
    pub(crate) currency: String,
    pub(crate) available: String,
    pub(crate) held: String,
}

/// RFC 9457 problem document.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ProblemDocument {
    pub(super) code: Option<String>,
    pub(super) title: Option<String>,
    pub(super) detail: Option<String>,
}
