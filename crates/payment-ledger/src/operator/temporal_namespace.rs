//! The Temporal namespace that has the workflows of open payments. Operators accept another one
//! ([`Change::AcceptTemporalNamespace`](super::changes::Change::AcceptTemporalNamespace)).

use crate::{Ledger, LedgerError};

impl Ledger {
    /// The id of the namespace that has the workflows of open payments. If none is recorded yet, `connected` is recorded.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn temporal_namespace(&self, connected: &str) -> Result<String, LedgerError> {
        if let Some(recorded) = self.recorded_temporal_namespace().await? {
            return Ok(recorded);
        }
        // Of several first payment-workers one records its namespace, and all of them read it.
        sqlx::query!(
            "INSERT INTO temporal_namespaces (number, namespace_id, accepted_by, reason)
             VALUES (1, $1, 'payment-worker', 'the first payment-worker was connected to it') ON CONFLICT DO NOTHING",
            connected,
        )
        .execute(&self.pool)
        .await?;
        Ok(self.recorded_temporal_namespace().await?.unwrap_or_else(|| connected.to_owned()))
    }

    async fn recorded_temporal_namespace(&self) -> Result<Option<String>, LedgerError> {
        Ok(sqlx::query_scalar!("SELECT namespace_id FROM temporal_namespaces ORDER BY number DESC LIMIT 1")
            .fetch_optional(&self.pool)
            .await?)
    }
}
