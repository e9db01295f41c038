//! Notifications of customers. One row is one message; the notifier makes each event notify once, by consuming it in the
//! transaction that inserts the row.

use jiff::Timestamp;
use payment_protocol::ids::PaymentId;
use postgres_kit::Connection;

use crate::events::EventKind;
use crate::{Ledger, LedgerError};

/// A message to a customer that is not recorded yet.
#[derive(Clone, Debug)]
pub struct NewNotification<'a> {
    /// The payment.
    pub payment_id: PaymentId,
    /// The event that it is about.
    pub event_id: &'a str,
    /// Kind of the event.
    pub kind: EventKind,
    /// The text for the customer.
    pub message: String,
}

/// A message to a customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Kind of the event.
    pub kind: String,
    /// The text for the customer.
    pub message: String,
    /// When it was recorded, by the database's clock.
    pub notified_at: Timestamp,
}

/// Records notifications in their order, in the caller's transaction.
///
/// # Errors
/// [`LedgerError`]; [`LedgerError::Refused`] if there is no such payment.
pub async fn notify(tx: &mut Connection, notifications: &[NewNotification<'_>]) -> Result<(), LedgerError> {
    let (mut payment_ids, mut event_ids) = (Vec::new(), Vec::new());
    let (mut kinds, mut messages) = (Vec::new(), Vec::new());
    for NewNotification { payment_id, event_id, kind, message } in notifications {
        payment_ids.push(payment_id.as_str());
        event_ids.push(*event_id);
        kinds.push(kind.as_str());
        messages.push(message.as_str());
    }
    sqlx::query!(
        "INSERT INTO notifications (payment_id, event_id, kind, message)
         SELECT payment_id, event_id, kind, message
         FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
              WITH ORDINALITY AS new (payment_id, event_id, kind, message, n)
         ORDER BY n",
        &payment_ids as &[&str],
        &event_ids as &[&str],
        &kinds as &[&str],
        &messages as &[&str],
    )
    .execute(tx)
    .await?;
    Ok(())
}

impl Ledger {
    /// The notifications of a payment, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn notifications(
        &self,
        payment_id: &PaymentId,
        limit: i64,
    ) -> Result<Vec<Notification>, LedgerError> {
        notifications(&mut self.pool.acquire().await?, payment_id, limit).await
    }
}

/// As [`Ledger::notifications`], on the caller's connection.
pub(crate) async fn notifications(
    connection: &mut Connection,
    payment_id: &PaymentId,
    limit: i64,
) -> Result<Vec<Notification>, LedgerError> {
    let rows = sqlx::query!(
        "SELECT kind, message, notified_at FROM notifications WHERE payment_id = $1 ORDER BY notification_id LIMIT $2",
        payment_id.as_str(),
        limit,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Notification {
            kind: row.kind,
            message: row.message,
            notified_at: row.notified_at.to_jiff(),
        })
        .collect())
}
