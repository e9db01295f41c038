//! The inbox: callbacks, cancel requests, final statuses and decisions, stored before they are delivered to a workflow.

use payment_protocol::decision::{Action, Decision};
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::inbox::{CallbackStatus, InboxMessage, InboxMessageKind};
use payment_protocol::state::FinalState;
use postgres_kit::{Connection, Pool};

use crate::row_lock::lock_payment;
use crate::stored_id::read_id;
use crate::{Ledger, LedgerError, writes};

/// Outcome of a customer's cancel request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelRequestOutcome {
    /// In the inbox (now or before); deliver the message, if there is one.
    Requested(Option<InboxMessage>),
    /// The payment has ended: there is nothing to cancel.
    Ended(FinalState),
}

impl Ledger {
    /// Records that a message was delivered, or that its workflow no longer exists, with other messages of the same moment.
    ///
    /// # Errors
    /// [`LedgerError`]: the message is delivered again.
    pub async fn mark_delivered(&self, inbox_id: i64) -> Result<(), LedgerError> {
        self.delivered.mark(&self.pool, inbox_id, write_delivered).await
    }

    /// As [`Ledger::mark_delivered`], for messages that one caller delivered.
    ///
    /// # Errors
    /// [`LedgerError`]: the messages are delivered again.
    pub async fn mark_all_delivered(&self, inbox_ids: &[i64]) -> Result<(), LedgerError> {
        if inbox_ids.is_empty() { Ok(()) } else { write_delivered(&self.pool, inbox_ids).await }
    }

    /// Claims at most `limit` undelivered messages that are due, oldest first, and defers their next delivery
    /// (doubling from `backoff_ms`, five minutes at most): a crash of the caller loses no message.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn claim_undelivered(
        &self,
        limit: i64,
        backoff_ms: i64,
    ) -> Result<Vec<InboxMessage>, LedgerError> {
        let rows = sqlx::query_as!(
            ClaimedMessage,
            r#"WITH due AS (
                   SELECT inbox_id FROM inbox
                   WHERE delivered_at IS NULL AND next_delivery_at <= clock_timestamp()
                   ORDER BY next_delivery_at LIMIT $1 FOR UPDATE SKIP LOCKED),
               claimed AS (
                   UPDATE inbox i
                   SET delivery_attempts = delivery_attempts + 1,
                       next_delivery_at = clock_timestamp()
                           + least($2 * (2 ^ least(delivery_attempts, 12)), 300000) * interval '1 millisecond'
                   -- A lost claim is a repeated delivery: its commit does not wait for the disk or a standby.
                   FROM due WHERE i.inbox_id = due.inbox_id AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'
                   RETURNING i.inbox_id, i.payment_id, i.kind, i.switch, i.event_id, i.decision_id)
               SELECT claimed.inbox_id, claimed.payment_id, claimed.kind, p.workflow_id, p.ended_at IS NOT NULL AS "ended!",
                      c.status AS "status?", c.reason AS "reason?", claimed.event_id, claimed.decision_id, d.action AS "action?"
               FROM claimed JOIN payments p USING (payment_id)
               LEFT JOIN switch_callbacks c ON c.switch = claimed.switch AND c.event_id = claimed.event_id
               LEFT JOIN decisions d ON d.decision_id = claimed.decision_id
               ORDER BY claimed.inbox_id"#,
            limit,
            backoff_ms as f64,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut messages = Vec::with_capacity(rows.len());
        for row in rows {
            let inbox_id = row.inbox_id;
            match row.message() {
                Ok(message) => messages.push(message),
                // The others are delivered; this one is claimed again, perhaps by a version that can read it.
                Err(error) => tracing::error!(
                    inbox.id = inbox_id,
                    error = &error as &dyn std::error::Error,
                    "the ledger could not parse a message of the inbox, so the message is not delivered now"
                ),
            }
        }
        Ok(messages)
    }
}

/// A claimed message, as stored.
struct ClaimedMessage {
    inbox_id: i64,
    payment_id: String,
    kind: String,
    workflow_id: String,
    ended: bool,
    status: Option<String>,
    reason: Option<String>,
    event_id: Option<String>,
    decision_id: Option<String>,
    action: Option<String>,
}

impl ClaimedMessage {
    fn message(self) -> Result<InboxMessage, LedgerError> {
        let payment_id = read_id(&self.payment_id)?;
        let kind = match (self.kind.as_str(), self.status, self.event_id) {
            ("final_status", ..) => InboxMessageKind::FinalStatusRecorded,
            ("decision", ..) => InboxMessageKind::Decision(parse_decision(self.decision_id, self.action)?),
            (_, Some(status), Some(event_id)) => {
                let status = callback_status(&event_id, status)?;
                InboxMessageKind::Callback { status, reason: self.reason, event_id }
            }
            _ => InboxMessageKind::Cancel,
        };
        Ok(InboxMessage {
            inbox_id: self.inbox_id,
            payment_id,
            workflow_id: self.workflow_id,
            ended: self.ended,
            kind,
        })
    }
}

async fn write_delivered(pool: &Pool, inbox_ids: &[i64]) -> Result<(), LedgerError> {
    // A lost mark is a repeated delivery: its commit does not wait for the disk or a standby.
    sqlx::query!(
        "UPDATE inbox SET delivered_at = clock_timestamp()
         WHERE inbox_id = ANY ($1) AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'",
        inbox_ids,
    )
    .execute(pool)
    .await?;
    Ok(())
}

fn callback_status(event_id: &str, word: String) -> Result<CallbackStatus, LedgerError> {
    match CallbackStatus::parse(&word) {
        Some(status) => Ok(status),
        None => Err(LedgerError::Unreadable { id: event_id.to_owned(), column: "status", value: word }),
    }
}

fn parse_decision(id: Option<String>, action: Option<String>) -> Result<Decision, LedgerError> {
    let (id, action) = (id.unwrap_or_default(), action.unwrap_or_default());
    match (DecisionId::new(id.as_str()), Action::parse(&action)) {
        (Ok(decision_id), Some(action)) => Ok(Decision { decision_id, action }),
        _ => Err(LedgerError::Unreadable { id, column: "action", value: action }),
    }
}

/// Stores a customer's cancel request, in the caller's transaction, which also claims its idempotency
/// key.
///
/// # Errors
/// [`LedgerError`].
pub async fn request_cancel(
    tx: &mut Connection,
    payment_id: &PaymentId,
) -> Result<CancelRequestOutcome, LedgerError> {
    let locked = lock_payment(tx, payment_id).await?;
    if let Some(end) = locked.facts.state.end() {
        return Ok(CancelRequestOutcome::Ended(end));
    }
    let inserted = sqlx::query!(
        "INSERT INTO inbox (payment_id, kind, next_delivery_at)
         VALUES ($1, 'cancel', clock_timestamp() + interval '1 second')
         ON CONFLICT DO NOTHING RETURNING inbox_id",
        payment_id.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = inserted else { return Ok(CancelRequestOutcome::Requested(None)) };
    writes::append_timeline(tx, payment_id, locked.facts.state, "the customer requested a cancel").await?;
    Ok(CancelRequestOutcome::Requested(Some(InboxMessage {
        inbox_id: row.inbox_id,
        payment_id: payment_id.clone(),
        workflow_id: locked.workflow_id,
        ended: false,
        kind: InboxMessageKind::Cancel,
    })))
}
