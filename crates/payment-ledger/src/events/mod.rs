//! What others are told of a payment: one place that says which state is an event, and in which form.
//!
//! The row is written in the transaction that moves the payment ([`outbox`]), so that what is told has happened and what
//! happened is told. The forms are published in `events/`, next to this crate's sources; a change that an old reader does
//! not understand is another [`VERSION`].

pub mod notifications;

use payment_protocol::PaymentState;
use payment_protocol::ids::PaymentId;
use payment_protocol::money::{format_major, parse_currency};
use payment_protocol::state::text_enum;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use crate::LedgerError;

/// Version of the form of all kinds.
pub const VERSION: i32 = 1;

text_enum!(
    /// Who takes events in, by name at the broker and in `processed_events`. Another name would tell everything anew.
    Consumer {
        /// Tells customers.
        Customers = "notifier",
        /// Tells the webhook endpoints of tenants.
        Endpoints = "webhooks",
    }
);

text_enum!(
    /// What is told of a payment, each at most once.
    EventKind {
        /// The amount is held in the customer's account.
        TransferPending = "transfer_pending",
        /// It stands before a person.
        TransferNeedsOperator = "transfer_needs_operator",
        /// End: debited, the money left.
        TransferSent = "transfer_sent",
        /// End: refused before anything was held.
        TransferRejected = "transfer_rejected",
        /// End: nothing was charged; the switch or the bank refused.
        TransferFailed = "transfer_failed",
        /// End: nothing was charged; no confirmation within the SLA.
        TransferTimedOut = "transfer_timed_out",
        /// End: nothing was charged; the customer cancelled.
        TransferCancelled = "transfer_cancelled",
    }
);

impl EventKind {
    /// What is told when a payment comes into this state, if anything is.
    #[must_use]
    pub fn of(state: PaymentState) -> Option<Self> {
        match state {
            PaymentState::Accepted
            | PaymentState::Started
            | PaymentState::Submitted
            | PaymentState::Confirmed
            | PaymentState::Cancelling => None,
            PaymentState::Reserved => Some(Self::TransferPending),
            PaymentState::NeedsOperator => Some(Self::TransferNeedsOperator),
            PaymentState::Settled => Some(Self::TransferSent),
            PaymentState::Rejected => Some(Self::TransferRejected),
            PaymentState::Failed => Some(Self::TransferFailed),
            PaymentState::TimedOut => Some(Self::TransferTimedOut),
            PaymentState::Cancelled => Some(Self::TransferCancelled),
        }
    }
}

/// The event's body, the same for all kinds. No account of another bank is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Which payment; also the key of the event's order.
    pub payment_id: String,
    /// Its transaction.
    pub transaction_id: String,
    /// Whose.
    pub tenant_id: String,
    /// The state it came into, as the API names it.
    pub status: String,
    /// Decimal in major units, with all decimals of the currency.
    pub amount: String,
    /// The same in minor units.
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
    /// The account on our books.
    pub source_account: String,
    /// The customer's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_to_end_id: Option<String>,
    /// Why it did not settle or stands before a person: a stable word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Tells that the payment has come into `state`, where that is an event; in the transaction in which it does.
pub(crate) async fn tell(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    state: PaymentState,
) -> Result<(), LedgerError> {
    let Some(kind) = EventKind::of(state) else { return Ok(()) };
    let row = sqlx::query!(
        r#"SELECT p.tx_id, p.tenant_id, p.amount_minor, p.currency, p.source_account, p.end_to_end_id, p.operator_reason,
                  p.cause ->> 'code' AS cause, o.reason AS "refusal?"
           FROM payments p
           LEFT JOIN operations o ON o.operation_key = p.payment_id || ':reserve' AND o.outcome = 'refused'
           WHERE p.payment_id = $1"#,
        payment_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    let unreadable = |column: &'static str, value: String| LedgerError::Unreadable {
        id: payment_id.to_string(),
        column,
        value,
    };
    let currency = parse_currency(&row.currency).map_err(|_| unreadable("currency", row.currency.clone()))?;
    let body = Transfer {
        payment_id: payment_id.to_string(),
        transaction_id: row.tx_id,
        tenant_id: row.tenant_id,
        status: state.as_str().to_owned(),
        amount: format_major(row.amount_minor, currency),
        amount_minor: row.amount_minor,
        currency: row.currency,
        source_account: row.source_account,
        end_to_end_id: row.end_to_end_id,
        reason: match kind {
            EventKind::TransferPending | EventKind::TransferSent => None,
            EventKind::TransferNeedsOperator => row.operator_reason,
            EventKind::TransferRejected
            | EventKind::TransferFailed
            | EventKind::TransferTimedOut
            | EventKind::TransferCancelled => row.cause.or(row.refusal),
        },
    };
    let body = serde_json::to_value(&body).map_err(|error| unreadable("event", error.to_string()))?;
    let event_id = format!("{payment_id}:{kind}");
    outbox::append(
        tx,
        outbox::NewEvent {
            event_id: &event_id,
            kind: kind.as_str(),
            version: VERSION,
            key: payment_id.as_str(),
            body: &body,
        },
    )
    .await?;
    Ok(())
}
