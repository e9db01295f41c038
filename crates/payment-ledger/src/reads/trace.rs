//! The trace of a payment. Read only by processes that export spans.

use payment_protocol::ids::{PaymentId, TxId};

use crate::{Ledger, LedgerError};

impl Ledger {
    /// Position of the payment's request in its distributed trace, a W3C `traceparent`; `None` if the payment was accepted without
    /// one, or does not exist.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn trace_parent(&self, payment_id: &PaymentId) -> Result<Option<String>, LedgerError> {
        let found = sqlx::query_scalar!(
            "SELECT trace_parent FROM payments WHERE payment_id = $1",
            payment_id.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(found.flatten())
    }

    /// As [`Ledger::trace_parent`], by the transaction id.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn trace_parent_of_transaction(&self, tx_id: &TxId) -> Result<Option<String>, LedgerError> {
        let found = sqlx::query_scalar!("SELECT trace_parent FROM payments WHERE tx_id = $1", tx_id.as_str())
            .fetch_optional(&self.pool)
            .await?;
        Ok(found.flatten())
    }
}
