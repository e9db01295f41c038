//! JSON views of a payment.

use jiff::Timestamp;
use openapi_kit::documented_enum;
use payment_ledger::LedgerError;
use payment_ledger::events::notifications;
use payment_ledger::reads::view::{self, PaymentView};
use payment_protocol::PaymentState;
use payment_protocol::money::{format_major, parse_currency};
use serde::Serialize;
use utoipa::ToSchema;

use super::path_of;
use crate::error::ApiError;

documented_enum!(
    pub(super) PaymentStatus, PaymentState,
    "State of a payment. It ends `settled`, `rejected`, `failed`, `timed_out` or `cancelled`."
);

/// Whether nothing came back.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(minor: &i64) -> bool {
    *minor == 0
}

/// A payment in its current state, without what concerns only the bank: why it needs an operator, what the operator may decide, its
/// workflow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Payment {
    /// Id of the payment, derived from tenant, client and Idempotency-Key.
    payment_id: String,
    /// Id of the transaction; the reference at the switch starts with it.
    transaction_id: String,
    /// The state of the payment.
    #[schema(value_type = PaymentStatus)]
    status: &'static str,
    /// Whether `status` is a final state.
    ended: bool,
    /// Decimal in major units, with all decimals of the currency.
    #[schema(example = "12.50")]
    amount: String,
    /// The amount in minor units.
    #[schema(example = 1250)]
    amount_minor: i64,
    /// ISO 4217 code.
    currency: String,
    /// Account to be charged.
    source_account: String,
    /// Account to be credited.
    destination_account: String,
    /// End-to-end id of the payer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    end_to_end_id: Option<String>,
    /// Switch that transfers the payment.
    switch: String,
    /// Why the payment did not settle, or is being compensated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// Since when the payment has needed an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    needs_operator_since: Option<Timestamp>,
    /// When the amount became available to the payer again without a confirmation. The transfer may still be executed until the payment
    /// has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    restored_at: Option<Timestamp>,
    /// What came back of a settled payment, in minor units; absent without a return. It was credited to the account if the account had
    /// been debited, else to the bank.
    #[serde(skip_serializing_if = "is_zero")]
    returned_minor: i64,
    /// When the payment was accepted.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When the payment last changed.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    /// When the payment ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    ended_at: Option<Timestamp>,
    links: Links,
}

/// Related paths.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PaymentLinks)]
pub(crate) struct Links {
    /// This payment.
    #[serde(rename = "self")]
    this: String,
    /// POST to cancel the payment; missing once the payment has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cancel: Option<String>,
}

/// One entry of the timeline of a payment.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TimelineEntry {
    /// State of the payment after the event.
    #[schema(value_type = PaymentStatus)]
    status: String,
    /// Description of the event.
    detail: String,
    /// Time of the event, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

/// A notification sent to the customer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Notification {
    /// `transfer_pending`, `transfer_needs_operator`, `transfer_restored`, `transfer_sent`, `transfer_rejected`, `transfer_failed`,
    /// `transfer_timed_out`, `transfer_cancelled`, or after the end `transfer_returned` or `transfer_charged`.
    kind: String,
    /// Text of the notification.
    message: String,
    /// When the notification was sent, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

impl Payment {
    /// The view of a stored payment.
    ///
    /// # Errors
    /// If the stored currency is unknown.
    pub(super) fn of(view: PaymentView) -> Result<Self, ApiError> {
        let ended = view.state.end().is_some();
        let this = path_of(&view.payment_id);
        Ok(Self {
            amount: decimal(&view.payment_id, view.amount_minor, &view.currency)?,
            links: Links { cancel: (!ended).then(|| format!("{this}/cancel")), this },
            payment_id: view.payment_id,
            transaction_id: view.tx_id,
            status: view.state.as_str(),
            ended,
            amount_minor: view.amount_minor,
            currency: view.currency,
            source_account: view.source_account,
            destination_account: view.destination_account,
            end_to_end_id: view.end_to_end_id,
            switch: view.switch,
            reason: view.reason,
            needs_operator_since: view.needs_operator_since,
            restored_at: view.restored_at,
            returned_minor: view.returned_minor,
            created_at: view.accepted_at,
            updated_at: view.updated_at,
            ended_at: view.ended_at,
        })
    }
}

impl From<notifications::Notification> for Notification {
    fn from(stored: notifications::Notification) -> Self {
        Self { kind: stored.kind, message: stored.message, at: stored.notified_at }
    }
}

impl TimelineEntry {
    /// State of the payment after the event.
    pub(super) fn status(&self) -> &str {
        &self.status
    }
}

impl From<view::TimelineEntry> for TimelineEntry {
    fn from(entry: view::TimelineEntry) -> Self {
        Self { status: entry.state, detail: entry.detail, at: entry.happened_at }
    }
}

/// An amount in minor units of a stored currency as a decimal; `id` names the row if the currency is unknown.
///
/// # Errors
/// [`LedgerError::Unreadable`].
pub(crate) fn decimal(id: &str, amount_minor: i64, currency: &str) -> Result<String, LedgerError> {
    let currency = parse_currency(currency).map_err(|_| LedgerError::Unreadable {
        id: id.to_owned(),
        column: "currency",
        value: currency.to_owned(),
    })?;
    Ok(format_major(amount_minor, currency))
}
