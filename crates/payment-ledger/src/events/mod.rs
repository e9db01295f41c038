//! Events about payments: which states are events, and their body.
//!
//! Events are appended to the [`outbox`] in the transaction that moves the payment, so exactly what happened is published.
//! The JSON Schemas are in `events/`, next to this crate's sources; an incompatible change of the body takes another
//! [`VERSION`].

pub mod notifications;

use payment_protocol::PaymentState;
use payment_protocol::ids::PaymentId;
use payment_protocol::money::{format_major, parse_currency};
use payment_protocol::rules::Bearer;
use payment_protocol::state::text_enum;
use postgres_kit::Connection;
use serde::{Deserialize, Serialize};

use crate::LedgerError;
use crate::row_lock::LockedPayment;

/// The reason in the event of a return that operators booked by a correction: the money came back, or had never left.
pub const CORRECTION: &str = "correction";

/// Version of the body, the same for all kinds.
pub const VERSION: i32 = 1;

text_enum!(
    /// Consumers of events, by their durable name at the broker and in `processed_events`. A renamed consumer would consume every
    /// event again.
    Consumer {
        /// Notifies customers.
        Customers = "notifier",
        /// Delivers to the webhook endpoints of tenants.
        Endpoints = "webhooks",
    }
);

text_enum!(
    /// Kinds of events; each at most once per payment, but for the returns, of which each is one event.
    EventKind {
        /// The amount is held in the customer's account.
        TransferPending = "transfer_pending",
        /// The payment needs an operator.
        TransferNeedsOperator = "transfer_needs_operator",
        /// No confirmation arrived in time: the amount is available to the customer again, and the transfer may still be executed.
        TransferRestored = "transfer_restored",
        /// Final: debited, the money left.
        TransferSent = "transfer_sent",
        /// Money of a sent transfer came back.
        TransferReturned = "transfer_returned",
        /// After the final event: the customer's account was debited for a transfer that was executed after all, or whose amount the bank
        /// had borne.
        TransferCharged = "transfer_charged",
        /// Final: refused before anything was held.
        TransferRejected = "transfer_rejected",
        /// Final: nothing was charged; the switch or the bank refused.
        TransferFailed = "transfer_failed",
        /// Final: nothing was charged; no confirmation within the SLA.
        TransferTimedOut = "transfer_timed_out",
        /// Final: nothing was charged; the customer cancelled.
        TransferCancelled = "transfer_cancelled",
    }
);

impl EventKind {
    /// The event of a payment that enters `state`; `None` if entering it is no event.
    #[must_use]
    pub fn for_state(state: PaymentState) -> Option<Self> {
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

impl EventKind {
    /// The example in the catalogue of events (`events/`): the event with its envelope, as JSON.
    #[must_use]
    pub fn example(self) -> &'static str {
        macro_rules! file {
            ($kind:literal) => {
                include_str!(concat!("../../events/", $kind, ".v1.example.json"))
            };
        }
        match self {
            Self::TransferPending => file!("transfer_pending"),
            Self::TransferNeedsOperator => file!("transfer_needs_operator"),
            Self::TransferRestored => file!("transfer_restored"),
            Self::TransferSent => file!("transfer_sent"),
            Self::TransferReturned => file!("transfer_returned"),
            Self::TransferCharged => file!("transfer_charged"),
            Self::TransferRejected => file!("transfer_rejected"),
            Self::TransferFailed => file!("transfer_failed"),
            Self::TransferTimedOut => file!("transfer_timed_out"),
            Self::TransferCancelled => file!("transfer_cancelled"),
        }
    }
}

/// The event's body, the same for all kinds. It contains no account of another bank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferEvent {
    /// The payment; also the key by which events are ordered.
    pub payment_id: String,
    /// The transaction id.
    pub transaction_id: String,
    /// The tenant.
    pub tenant_id: String,
    /// The state entered, as the API names it.
    pub status: String,
    /// Decimal in major units, with all decimals of the currency.
    pub amount: String,
    /// The amount in minor units.
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
    /// The customer's account at our bank.
    pub source_account: String,
    /// The customer's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_to_end_id: Option<String>,
    /// Why the payment did not settle, or that a correction booked the return: a stable word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a transfer that was executed after the customer's account had been restored, or that the account could not be debited for: who
    /// paid for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_settlement: Option<Bearer>,
    /// Of a return: its amount in minor units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned_minor: Option<i64>,
    /// Of a return: all that came back of the transfer so far, in minor units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned_total_minor: Option<i64>,
    /// Of a charge after the final event: what was debited from the customer's account, in minor units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_minor: Option<i64>,
    /// Of a return: the party that was credited, because it had borne the amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credited: Option<Bearer>,
}

/// An event to append, with its own texts.
pub(crate) struct StateEvent {
    event_id: String,
    payment_id: String,
    kind: EventKind,
    body: serde_json::Value,
    trace_parent: Option<String>,
}

impl StateEvent {
    /// The event of a locked payment that enters `state` for no reason that it must name; `None` if entering it is no event.
    pub(crate) fn without_reason(
        locked: &LockedPayment,
        state: PaymentState,
    ) -> Result<Option<Self>, LedgerError> {
        let Some(kind) = EventKind::for_state(state) else { return Ok(None) };
        Self::of_kind(locked, kind, state).map(Some)
    }

    /// That the customer's account was restored.
    pub(crate) fn restored(locked: &LockedPayment) -> Result<Self, LedgerError> {
        Self::of_kind(locked, EventKind::TransferRestored, locked.state_while_compensated())
    }

    fn of_kind(locked: &LockedPayment, kind: EventKind, state: PaymentState) -> Result<Self, LedgerError> {
        let body = TransferEvent {
            payment_id: locked.payment_id.to_string(),
            transaction_id: locked.tx_id.to_string(),
            tenant_id: locked.tenant_id.clone(),
            status: state.as_str().to_owned(),
            amount: format_major(locked.money.amount_minor(), locked.money.currency()),
            amount_minor: locked.money.amount_minor(),
            currency: locked.money.currency().code().to_owned(),
            source_account: locked.source_account.to_string(),
            end_to_end_id: locked.end_to_end_id.clone(),
            reason: None,
            // A late settlement without a collection is written one by one.
            late_settlement: (kind == EventKind::TransferSent && locked.facts.restored)
                .then_some(Bearer::Customer),
            returned_minor: None,
            returned_total_minor: None,
            charged_minor: None,
            credited: None,
        };
        Self::new(kind, &body, locked.trace_parent.clone())
    }

    fn new(
        kind: EventKind,
        transfer: &TransferEvent,
        trace_parent: Option<String>,
    ) -> Result<Self, LedgerError> {
        let payment_id = transfer.payment_id.clone();
        match serde_json::to_value(transfer) {
            Ok(body) => {
                Ok(Self { event_id: format!("{payment_id}:{kind}"), payment_id, kind, body, trace_parent })
            }
            Err(error) => {
                Err(LedgerError::Unreadable { id: payment_id, column: "event", value: error.to_string() })
            }
        }
    }

    /// As the outbox takes it.
    pub(crate) fn as_new(&self) -> outbox::NewEvent<'_> {
        outbox::NewEvent {
            event_id: &self.event_id,
            kind: self.kind.as_str(),
            version: VERSION,
            key: &self.payment_id,
            body: &self.body,
            trace_parent: self.trace_parent.as_deref(),
        }
    }
}

/// A return that was booked.
pub(crate) struct BookedReturn {
    /// Hex digits that only this return of the payment has. The event's id ends with them, so that a repeat after a lost commit is the same
    /// event.
    pub(crate) digest: String,
    pub(crate) amount_minor: i64,
    pub(crate) total_minor: i64,
    pub(crate) credited: Bearer,
    pub(crate) is_correction: bool,
}

/// Appends the event of a booked return; in the transaction that books it.
pub(crate) async fn append_returned(
    tx: &mut Connection,
    locked: &LockedPayment,
    booked: &BookedReturn,
) -> Result<(), LedgerError> {
    let mut event = StateEvent::of_kind(locked, EventKind::TransferReturned, locked.final_state())?;
    event.event_id = format!("{}:{}", event.event_id, booked.digest);
    if let Some(body) = event.body.as_object_mut() {
        body.insert("returned_minor".into(), booked.amount_minor.into());
        body.insert("returned_total_minor".into(), booked.total_minor.into());
        body.insert("credited".into(), booked.credited.as_str().into());
        if booked.is_correction {
            body.insert("reason".into(), CORRECTION.into());
        }
    }
    outbox::append(tx, event.as_new()).await?;
    Ok(())
}

/// Appends the event of a debit of the customer's account after the payment's end; in the transaction that posts it.
pub(crate) async fn append_charged(
    tx: &mut Connection,
    locked: &LockedPayment,
    charged_minor: i64,
) -> Result<(), LedgerError> {
    let mut event = StateEvent::of_kind(locked, EventKind::TransferCharged, locked.final_state())?;
    if let Some(body) = event.body.as_object_mut() {
        body.insert("charged_minor".into(), charged_minor.into());
    }
    outbox::append(tx, event.as_new()).await?;
    Ok(())
}

/// Appends the event of a payment that enters `state`, if it is one; in the transaction that moves the payment.
pub(crate) async fn append_event(
    tx: &mut Connection,
    payment_id: &PaymentId,
    state: PaymentState,
) -> Result<(), LedgerError> {
    let Some(kind) = EventKind::for_state(state) else { return Ok(()) };
    let row = sqlx::query!(
        r#"SELECT p.tx_id, p.tenant_id, p.amount_minor, p.currency, p.source_account, p.end_to_end_id, p.trace_parent,
                  p.cause ->> 'code' AS cause, o.reason AS "refusal?", p.restored_at IS NOT NULL AS "was_restored!",
                  EXISTS (SELECT FROM claims c WHERE c.payment_id = p.payment_id AND c.closed_at IS NULL) AS "has_claim!"
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
    let body = TransferEvent {
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
            EventKind::TransferPending
            // Why concerns only the bank.
            | EventKind::TransferNeedsOperator
            | EventKind::TransferRestored
            | EventKind::TransferSent
            | EventKind::TransferReturned
            | EventKind::TransferCharged => None,
            EventKind::TransferRejected
            | EventKind::TransferFailed
            | EventKind::TransferTimedOut
            | EventKind::TransferCancelled => row.cause.or(row.refusal),
        },
        late_settlement: (kind == EventKind::TransferSent && (row.was_restored || row.has_claim))
            .then_some(if row.has_claim { Bearer::Bank } else { Bearer::Customer }),
        returned_minor: None,
        returned_total_minor: None,
        charged_minor: None,
        credited: None,
    };
    outbox::append(tx, StateEvent::new(kind, &body, row.trace_parent)?.as_new()).await?;
    Ok(())
}
