//! What a payment looks like to its caller.

use jiff::Timestamp;
use payment_ledger::LedgerError;
use payment_ledger::events::notifications::Notification;
use payment_ledger::reads::view::{PaymentView, TimelineEntry};
use payment_protocol::decision::Action;
use payment_protocol::money::{format_major, parse_currency};
use serde::Serialize;
use utoipa::ToSchema;

use super::path_of;
use crate::error::ApiError;

/// A payment as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Payment {
    /// Its id; derived from tenant, client and Idempotency-Key.
    payment_id: String,
    /// Its transaction, the root of what the switch knows it by.
    transaction_id: String,
    /// `accepted`, `started`, `reserved`, `submitted`, `confirmed`, `cancelling`, `needs_operator`, or an
    /// end: `settled`, `rejected`, `failed`, `timed_out`, `cancelled`.
    status: &'static str,
    /// Whether `status` is an end: nothing changes any more.
    ended: bool,
    /// Decimal in major units, with all decimals of the currency.
    #[schema(example = "12.50")]
    amount: String,
    /// The same in minor units.
    #[schema(example = 1250)]
    amount_minor: i64,
    /// ISO 4217 code.
    currency: String,
    /// The account that is charged.
    source_account: String,
    /// The account that is paid.
    destination_account: String,
    /// The payer's own id.
    #[serde(skip_serializing_if = "Option::is_none")]
    end_to_end_id: Option<String>,
    /// The switch it goes through.
    switch: String,
    /// Why it did not settle, or is being turned round.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Why it waits for a person, or last did.
    #[serde(skip_serializing_if = "Option::is_none")]
    operator_reason: Option<String>,
    /// Since when it waits for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    needs_operator_since: Option<Timestamp>,
    /// What the bank's people may decide about it now: `retry_cancel`, `settle`, `release`. Not for callers to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allowed_actions: Vec<&'static str>,
    /// The workflow that runs it, as the Temporal UI names it.
    workflow_id: String,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it last moved.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
    links: Links,
}

/// Where to go from here.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Links {
    /// This payment.
    #[serde(rename = "self")]
    this: String,
    /// POST here to cancel it, while it can be asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel: Option<String>,
}

/// One line of what happened to a payment.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Step {
    /// The state it was in or went to.
    status: String,
    /// What happened.
    detail: String,
    /// When, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

/// A message to the customer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Told {
    /// `transfer_pending`, `transfer_needs_operator`, `transfer_sent`, `transfer_rejected`, `transfer_failed`,
    /// `transfer_timed_out` or `transfer_cancelled`.
    kind: String,
    /// In words.
    message: String,
    /// When it was told, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

impl Payment {
    /// Shows a stored payment.
    ///
    /// # Errors
    /// A stored currency that cannot be read.
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
            operator_reason: view.operator_reason,
            needs_operator_since: view.needs_operator_since,
            allowed_actions: view.allowed_actions.into_iter().map(Action::as_str).collect(),
            workflow_id: view.workflow_id,
            created_at: view.accepted_at,
            updated_at: view.updated_at,
            ended_at: view.ended_at,
        })
    }
}

impl From<Notification> for Told {
    fn from(told: Notification) -> Self {
        Self { kind: told.kind, message: told.message, at: told.notified_at }
    }
}

impl Step {
    /// The state it was in or went to.
    pub(super) fn status(&self) -> &str {
        &self.status
    }
}

impl From<TimelineEntry> for Step {
    fn from(entry: TimelineEntry) -> Self {
        Self { status: entry.state, detail: entry.detail, at: entry.happened_at }
    }
}

/// Minor units of a stored currency as a decimal; `id` names the row when the currency is none.
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
