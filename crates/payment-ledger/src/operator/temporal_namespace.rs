//! The Temporal namespace that has the workflows of open payments.

use crate::operator::decisions::{DecideError, validate_operator_and_reason};
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

    /// Accepts that the workflows of open payments are in the namespace with this id from now on: those that it does not have
    /// are lost. Returns false if it is the recorded one already.
    ///
    /// # Errors
    /// [`DecideError`]: an invalid operator name or reason is refused, as for a decision.
    pub async fn accept_temporal_namespace(
        &self,
        namespace_id: &str,
        by: &str,
        reason: &str,
    ) -> Result<bool, DecideError> {
        let (by, reason) = validate_operator_and_reason(by, reason)?;
        let accepted = sqlx::query!(
            "INSERT INTO temporal_namespaces (number, namespace_id, accepted_by, reason)
             SELECT coalesce(max(number), 0) + 1, $1, $2, $3 FROM temporal_namespaces
             HAVING (array_agg(namespace_id ORDER BY number DESC))[1] IS DISTINCT FROM $1",
            namespace_id,
            by,
            reason,
        )
        .execute(&self.pool)
        .await?;
        Ok(accepted.rows_affected() > 0)
    }
}
