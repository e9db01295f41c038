//! Notifications of customers. One row is one message; the notifier makes each event notify once, by consuming it in the
//! transaction that inserts the row.

use jiff::Timestamp;
use payment_protocol::ids::PaymentId;
use sqlx::PgConnection;

use crate::events::EventKind;
use crate::{Ledger, LedgerError};

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

/// Records a notification, in the caller's transaction.
///
/// # Errors
/// [`LedgerError`]; [`LedgerError::Refused`] if there is no such payment.
pub async fn notify(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    event_id: &str,
    kind: EventKind,
    message: &str,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "INSERT INTO notifications (payment_id, event_id, kind, message) VALUES ($1, $2, $3, $4)",
        payment_id.as_str(),
        event_id,
        kind.as_str(),
        message,
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
        notifications(&mut *self.pool.acquire().await?, payment_id, limit).await
    }
}

/// As [`Ledger::notifications`], on the caller's connection.
pub(crate) async fn notifications(
    connection: &mut PgConnection,
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
