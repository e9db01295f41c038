//! The inbox: callbacks, customers' cancels and what people decided, stored before anybody is told.
//!
//! Storing a callback and ending a payment lock the same payment row: whichever comes second
//! compares, so no callback vanishes between them.

use payment_protocol::decision::{Action, Decision};
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::{DecisionId, EventId, PaymentId, SwitchName};
use payment_protocol::inbox::{CallbackStatus, InboxMessage, InboxMessageKind};
use payment_protocol::keys::Reference;
use payment_protocol::report::SettledReport;
use payment_protocol::rules::FinalStatusRuling;
use payment_protocol::state::FinalState;
use sqlx::PgConnection;

use crate::row_lock::{Locked, lock};
use crate::switch::final_status::{Source, write_settled};
use crate::writes::Exception;
use crate::{Ledger, LedgerError, writes};

/// An authentic callback, verified on its raw body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// The switch whose secret signed it.
    pub switch: SwitchName,
    /// The switch's id of the event.
    pub event_id: EventId,
    /// The reference as sent.
    pub reference: String,
    /// What it says.
    pub status: CallbackStatus,
    /// The amount it names, in minor units.
    pub amount_minor: i64,
    /// The currency it names.
    pub currency: String,
    /// The switch's words.
    pub reason: Option<String>,
    /// The body as it came.
    pub body: Vec<u8>,
}

/// What became of a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Stored; tell the workflow if there is a message.
    New(Option<InboxMessage>),
    /// Stored before, with the same body.
    Duplicate,
    /// The event id was used before with another body: an exception; the first stands.
    CallbackEventIdReused,
}

/// What became of a customer's cancel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelRequest {
    /// In the inbox (now or before); tell the workflow if there is a message.
    Requested(Option<InboxMessage>),
    /// The payment has ended: there is nothing to cancel.
    Ended(FinalState),
}

impl Ledger {
    /// Stores a callback, and what follows from it, in one transaction.
    ///
    /// # Errors
    /// [`LedgerError`]: nothing is stored, or unknown; the switch sends again.
    pub async fn store_callback(&self, callback: &Callback) -> Result<Stored, LedgerError> {
        let mut tx = self.pool.begin().await?;
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
            Some(payment_id) => Some(lock(&mut tx, payment_id).await?),
            None => None,
        };
        if let Some(earlier) = insert(&mut tx, callback, known.as_ref()).await? {
            if earlier == callback.body {
                return Ok(Stored::Duplicate);
            }
            let origin = format!("{}:{}", callback.switch, callback.event_id);
            let detail = format!("event {origin} came again with another body");
            writes::exception(&mut tx, known.as_ref(), Exception::CallbackEventIdReused, &origin, &detail)
                .await?;
            tx.commit().await?;
            return Ok(Stored::CallbackEventIdReused);
        }
        let message = match locked {
            None => {
                let origin = format!("{}:{}", callback.switch, callback.event_id);
                let detail =
                    format!("{} for unknown reference {}", callback.status.as_str(), callback.reference);
                writes::exception(&mut tx, None, Exception::CallbackForUnknownPayment, &origin, &detail)
                    .await?;
                None
            }
            Some(locked) if follow(&mut tx, &locked, callback).await? => {
                Some(put_callback(&mut tx, &locked, callback).await?)
            }
            Some(_) => None,
        };
        tx.commit().await?;
        Ok(Stored::New(message))
    }

    /// Marks that a workflow was told, or that there is none to tell any more.
    ///
    /// # Errors
    /// [`LedgerError`]: the message is delivered again.
    pub async fn mark_delivered(&self, inbox_id: i64) -> Result<(), LedgerError> {
        sqlx::query!("UPDATE inbox SET delivered_at = clock_timestamp() WHERE inbox_id = $1", inbox_id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Takes at most `limit` messages that are due and not delivered, oldest first, and puts their
    /// next delivery off (doubling from `backoff_ms`, five minutes at most), so that a crash of the
    /// taker loses nothing.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn claim_undelivered(
        &self,
        limit: i64,
        backoff_ms: i64,
    ) -> Result<Vec<InboxMessage>, LedgerError> {
        let rows = sqlx::query!(
            r#"WITH due AS (
                   SELECT inbox_id FROM inbox
                   WHERE delivered_at IS NULL AND deliver_at <= clock_timestamp()
                   ORDER BY deliver_at LIMIT $1 FOR UPDATE SKIP LOCKED),
               taken AS (
                   UPDATE inbox i
                   SET deliveries = deliveries + 1,
                       deliver_at = clock_timestamp()
                           + least($2 * (2 ^ least(deliveries, 12)), 300000) * interval '1 millisecond'
                   FROM due WHERE i.inbox_id = due.inbox_id
                   RETURNING i.inbox_id, i.payment_id, i.kind, i.switch, i.event_id, i.decision_id)
               SELECT taken.inbox_id, taken.payment_id, taken.kind, p.workflow_id, p.ended_at IS NOT NULL AS "ended!",
                      c.status AS "status?", c.reason AS "reason?", taken.event_id, taken.decision_id, d.action AS "action?"
               FROM taken JOIN payments p USING (payment_id)
               LEFT JOIN switch_callbacks c ON c.switch = taken.switch AND c.event_id = taken.event_id
               LEFT JOIN decisions d ON d.decision_id = taken.decision_id
               ORDER BY taken.inbox_id"#,
            limit,
            backoff_ms as f64,
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let payment_id =
                    PaymentId::new(row.payment_id.as_str()).map_err(|_| LedgerError::Unreadable {
                        id: row.payment_id.clone(),
                        column: "payment_id",
                        value: row.payment_id,
                    })?;
                let kind = match (row.kind.as_str(), row.status, row.event_id) {
                    ("final_status", ..) => InboxMessageKind::FinalStatusRecorded,
                    ("decision", ..) => InboxMessageKind::Decision(decision(row.decision_id, row.action)?),
                    (_, Some(status), Some(event_id)) => {
                        let status = callback_status(&event_id, status)?;
                        InboxMessageKind::Callback { status, reason: row.reason, event_id }
                    }
                    _ => InboxMessageKind::Cancel,
                };
                Ok(InboxMessage {
                    inbox_id: row.inbox_id,
                    payment_id,
                    workflow_id: row.workflow_id,
                    ended: row.ended,
                    kind,
                })
            })
            .collect()
    }
}

fn callback_status(event_id: &str, word: String) -> Result<CallbackStatus, LedgerError> {
    match CallbackStatus::parse(&word) {
        Some(status) => Ok(status),
        None => Err(LedgerError::Unreadable { id: event_id.to_owned(), column: "status", value: word }),
    }
}

fn decision(id: Option<String>, action: Option<String>) -> Result<Decision, LedgerError> {
    let (id, action) = (id.unwrap_or_default(), action.unwrap_or_default());
    match (DecisionId::new(id.as_str()), Action::parse(&action)) {
        (Ok(decision_id), Some(action)) => Ok(Decision { decision_id, action }),
        _ => Err(LedgerError::Unreadable { id, column: "action", value: action }),
    }
}

/// Puts a customer's cancel into the inbox, in the caller's transaction (the claim of its
/// idempotency key is in the same one).
///
/// # Errors
/// [`LedgerError`].
pub async fn request_cancel(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
) -> Result<CancelRequest, LedgerError> {
    let locked = lock(tx, payment_id).await?;
    if let Some(end) = locked.facts.state.end() {
        return Ok(CancelRequest::Ended(end));
    }
    let inserted = sqlx::query!(
        "INSERT INTO inbox (payment_id, kind, deliver_at)
         VALUES ($1, 'cancel', clock_timestamp() + interval '1 second')
         ON CONFLICT DO NOTHING RETURNING inbox_id",
        payment_id.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = inserted else { return Ok(CancelRequest::Requested(None)) };
    writes::timeline(tx, payment_id, locked.facts.state, "the customer asked to cancel").await?;
    let workflow_id = current_workflow(tx, payment_id).await?;
    Ok(CancelRequest::Requested(Some(InboxMessage {
        inbox_id: row.inbox_id,
        payment_id: payment_id.clone(),
        workflow_id,
        ended: false,
        kind: InboxMessageKind::Cancel,
    })))
}

/// Inserts the callback; gives the body stored before under the same event id, if there is one.
async fn insert(
    tx: &mut PgConnection,
    callback: &Callback,
    payment_id: Option<&PaymentId>,
) -> Result<Option<Vec<u8>>, LedgerError> {
    let reason = callback.reason.as_deref().map(writes::storable);
    let inserted = sqlx::query!(
        "INSERT INTO switch_callbacks
             (switch, event_id, payment_id, reference, status, amount_minor, currency, reason, body)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
        callback.switch.as_str(),
        callback.event_id.as_str(),
        payment_id.map(PaymentId::as_str),
        &*writes::storable(&callback.reference),
        callback.status.as_str(),
        callback.amount_minor,
        &*writes::storable(&callback.currency),
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

/// Writes what follows from a callback; says whether the workflow must be told.
async fn follow(tx: &mut PgConnection, locked: &Locked, callback: &Callback) -> Result<bool, LedgerError> {
    let payment_id = &locked.payment_id;
    let open = locked.facts.state.end().is_none();
    if callback.status == CallbackStatus::Success {
        let report = SettledReport {
            switch: callback.switch.clone(),
            reference: callback.reference.clone(),
            amount_minor: callback.amount_minor,
            currency: callback.currency.clone(),
        };
        let ruling = write_settled(tx, locked, &report, Source::Callback).await?;
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
        let detail = format!("FAILURE of another switch, {}: {reason}", callback.switch);
        writes::exception(tx, Some(payment_id), Exception::CallbackFromOtherSwitch, &origin, &detail).await?;
        return Ok(false);
    }
    if locked.facts.final_status == Some(FinalStatus::Settled) {
        let detail = format!("FAILURE after the SUCCESS: {reason}");
        writes::exception(tx, Some(payment_id), Exception::ContradictoryFinalStatus, &origin, &detail)
            .await?;
        return Ok(false);
    }
    if open {
        let detail = format!("the switch reported a failure, which decides nothing: {reason}");
        writes::timeline(tx, payment_id, locked.facts.state, &detail).await?;
    }
    Ok(open)
}

async fn put_callback(
    tx: &mut PgConnection,
    locked: &Locked,
    callback: &Callback,
) -> Result<InboxMessage, LedgerError> {
    // The relay leaves it alone for a second, which the process that stored it has to deliver.
    let row = sqlx::query!(
        "INSERT INTO inbox (payment_id, kind, switch, event_id, deliver_at)
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

async fn current_workflow(tx: &mut PgConnection, payment_id: &PaymentId) -> Result<String, LedgerError> {
    Ok(sqlx::query_scalar!("SELECT workflow_id FROM payments WHERE payment_id = $1", payment_id.as_str())
        .fetch_one(&mut *tx)
        .await?)
}
