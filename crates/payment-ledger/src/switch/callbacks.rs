//! Callbacks of the switch, stored with their consequences before they are delivered to a workflow.
//!
//! Storing a callback and ending a payment lock the same payment row: the second one sees the first, so no
//! callback is lost between them.

use payment_protocol::exception::ExceptionKind;
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::{EventId, PaymentId, SwitchName};
use payment_protocol::inbox::{CallbackStatus, InboxMessage, InboxMessageKind};
use payment_protocol::keys::Reference;
use payment_protocol::report::SettledReport;
use payment_protocol::rules::FinalStatusRuling;
use postgres_kit::text::replace_nul;
use sqlx::PgConnection;

use crate::row_lock::{LockedPayment, lock_payment};
use crate::switch::final_status::{FinalStatusSource, write_returned, write_settled};
use crate::switch::inbox::current_workflow;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, writes};

/// An authentic callback: its signature over the raw body was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// The switch whose secret signed it.
    pub switch: SwitchName,
    /// The switch's event id.
    pub event_id: EventId,
    /// The reference as received.
    pub reference: String,
    /// The reported status.
    pub status: CallbackStatus,
    /// The reported amount, in minor units.
    pub amount_minor: i64,
    /// The reported currency.
    pub currency: String,
    /// The switch's reason.
    pub reason: Option<String>,
    /// The raw body.
    pub body: Vec<u8>,
}

/// Outcome of storing a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCallbackOutcome {
    /// Stored now; deliver the message, if there is one.
    New(Option<InboxMessage>),
    /// Stored before, with the same body.
    Duplicate,
    /// The event id was used before with another body: an exception is open, and the first body is kept.
    CallbackEventIdReused,
}

impl Ledger {
    /// Stores a callback and its consequences in one transaction.
    ///
    /// # Errors
    /// [`LedgerError`]: not stored, or unknown; the switch repeats the callback.
    pub async fn store_callback(&self, callback: &Callback) -> Result<StoreCallbackOutcome, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let tx_id = Reference::from_switch(&callback.reference).and_then(|reference| reference.tx_id());
        let known = match &tx_id {
            None => None,
            Some(tx_id) => {
                sqlx::query_scalar!("SELECT payment_id FROM payments WHERE tx_id = $1", tx_id.as_str())
                    .fetch_optional(&mut *tx)
                    .await?
                    .and_then(|id| PaymentId::new(id).ok())
            }
        };
        let locked = match &known {
            Some(payment_id) => Some(lock_payment(&mut tx, payment_id).await?),
            None => None,
        };
        if let Some(earlier) = insert(&mut tx, callback, known.as_ref()).await? {
            if earlier == callback.body {
                return Ok(StoreCallbackOutcome::Duplicate);
            }
            let origin = format!("{}:{}", callback.switch, callback.event_id);
            let detail = format!("callback event {origin} was received again with another body");
            tx.open_exception(known.as_ref(), ExceptionKind::CallbackEventIdReused, &origin, &detail).await?;
            tx.commit().await?;
            return Ok(StoreCallbackOutcome::CallbackEventIdReused);
        }
        let message = match locked {
            None => {
                let origin = format!("{}:{}", callback.switch, callback.event_id);
                let detail = format!(
                    "the switch reported {} for reference {}, which belongs to no payment",
                    callback.status.as_str(),
                    callback.reference
                );
                tx.open_exception(None, ExceptionKind::CallbackForUnknownPayment, &origin, &detail).await?;
                None
            }
            Some(locked) if apply_callback(&mut tx, &locked, callback).await? => {
                Some(insert_message(&mut tx, &locked, callback).await?)
            }
            Some(_) => None,
        };
        tx.commit().await?;
        Ok(StoreCallbackOutcome::New(message))
    }
}

/// Inserts the callback; returns the stored body if the event id exists already.
async fn insert(
    tx: &mut PgConnection,
    callback: &Callback,
    payment_id: Option<&PaymentId>,
) -> Result<Option<Vec<u8>>, LedgerError> {
    let reason = callback.reason.as_deref().map(replace_nul);
    let inserted = sqlx::query!(
        "INSERT INTO switch_callbacks
             (switch, event_id, payment_id, reference, status, amount_minor, currency, reason, body)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
        callback.switch.as_str(),
        callback.event_id.as_str(),
        payment_id.map(PaymentId::as_str),
        &*replace_nul(&callback.reference),
        callback.status.as_str(),
        callback.amount_minor,
        &*replace_nul(&callback.currency),
        reason.as_deref(),
        callback.body,
    )
    .execute(&mut *tx)
    .await?;
    if inserted.rows_affected() > 0 {
        return Ok(None);
    }
    let earlier = sqlx::query_scalar!(
        "SELECT body FROM switch_callbacks WHERE switch = $1 AND event_id = $2",
        callback.switch.as_str(),
        callback.event_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    Ok(Some(earlier))
}

/// Writes the consequences of a callback; returns whether the workflow receives a message.
async fn apply_callback(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    callback: &Callback,
) -> Result<bool, LedgerError> {
    let payment_id = &locked.payment_id;
    let open = locked.facts.state.end().is_none();
    if callback.status != CallbackStatus::Failure {
        let report = SettledReport {
            switch: callback.switch.clone(),
            reference: callback.reference.clone(),
            amount_minor: callback.amount_minor,
            currency: callback.currency.clone(),
        };
        let ruling = if callback.status == CallbackStatus::Returned {
            write_returned(tx, locked, &report, FinalStatusSource::Callback).await?
        } else {
            write_settled(tx, locked, &report, FinalStatusSource::Callback).await?
        };
        return Ok(open
            && match ruling {
                FinalStatusRuling::First | FinalStatusRuling::Same => true,
                FinalStatusRuling::Differs(difference) => {
                    difference != payment_protocol::report::Difference::Switch
                }
                FinalStatusRuling::NoAttempt | FinalStatusRuling::Contradicts => false,
            });
    }
    let reason = callback.reason.as_deref().unwrap_or("no reason given");
    // Event ids are unique per switch only.
    let origin = format!("{}:{}", callback.switch, callback.event_id);
    if callback.switch != locked.profile.switch {
        let detail =
            format!("another switch than the payment's, {}, reported FAILURE: {reason}", callback.switch);
        tx.open_exception(Some(payment_id), ExceptionKind::CallbackFromOtherSwitch, &origin, &detail).await?;
        return Ok(false);
    }
    if matches!(locked.facts.final_status, Some(FinalStatus::Settled | FinalStatus::Returned)) {
        let detail = format!("the switch reported FAILURE after it had reported SUCCESS: {reason}");
        tx.open_exception(Some(payment_id), ExceptionKind::ContradictoryFinalStatus, &origin, &detail)
            .await?;
        return Ok(false);
    }
    if open {
        let detail = format!("the switch reported a failure, which is not final: {reason}");
        writes::append_timeline(tx, payment_id, locked.facts.state, &detail).await?;
    }
    Ok(open)
}

async fn insert_message(
    tx: &mut PgConnection,
    locked: &LockedPayment,
    callback: &Callback,
) -> Result<InboxMessage, LedgerError> {
    // Due after one second: the process that stored the callback delivers it first.
    let row = sqlx::query!(
        "INSERT INTO inbox (payment_id, kind, switch, event_id, next_delivery_at)
         VALUES ($1, 'callback', $2, $3, clock_timestamp() + interval '1 second') RETURNING inbox_id",
        locked.payment_id.as_str(),
        callback.switch.as_str(),
        callback.event_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    Ok(InboxMessage {
        inbox_id: row.inbox_id,
        payment_id: locked.payment_id.clone(),
        workflow_id: current_workflow(tx, &locked.payment_id).await?,
        ended: locked.facts.state.end().is_some(),
        kind: InboxMessageKind::Callback {
            status: callback.status,
            reason: callback.reason.clone(),
            event_id: callback.event_id.to_string(),
        },
    })
}
