//! What a person must see: payments that stand, and alerts.

use payment_protocol::PaymentState;
use payment_protocol::cause::OperatorReason;
use payment_protocol::ids::PaymentId;
use payment_protocol::port::NeedsOperatorOutcome;
use payment_protocol::text_enum;

use crate::row_lock::lock;
use crate::{Ledger, LedgerError, operator::decisions, writes};

text_enum!(
    /// What a person is alerted to about one payment.
    AlertKind {
        /// It stands before a person.
        NeedsOperator = "needs_operator",
        /// A step could not be undone; the other steps are.
        CompensationFailed = "compensation_failed",
        /// The switch has been asked to cancel for longer than its profile's `alert_after_ms`, or says that we ask wrongly.
        CancelUndecided = "cancel_undecided",
        /// The switch was asked for the money back and has not decided.
        RecallUndecided = "recall_undecided",
    }
);

impl Ledger {
    /// Shows the payment as standing before a person, and alerts; or says what is on record already.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn needs_operator(
        &self,
        payment_id: &PaymentId,
        reason: OperatorReason,
    ) -> Result<NeedsOperatorOutcome, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock(&mut tx, payment_id).await?;
        if let Some(end) = locked.facts.state.end() {
            return Ok(NeedsOperatorOutcome::Ended(end));
        }
        sqlx::query!(
            "UPDATE payments SET operator_reason = $2, needs_operator_since = coalesce(needs_operator_since, clock_timestamp())
             WHERE payment_id = $1",
            payment_id.as_str(),
            reason.as_str(),
        )
        .execute(&mut *tx)
        .await?;
        let detail = format!("stands before a person: {reason}");
        writes::state(&mut tx, payment_id, PaymentState::NeedsOperator, &detail).await?;
        decisions::reopen_delivery(&mut tx, payment_id).await?;
        tx.commit().await?;
        self.alert(payment_id, AlertKind::NeedsOperator, reason.as_str()).await?;
        Ok(locked
            .facts
            .final_status
            .map_or(NeedsOperatorOutcome::AwaitsOperator, NeedsOperatorOutcome::FinalStatus))
    }

    /// Raises an alert, once per payment and kind.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn alert(
        &self,
        payment_id: &PaymentId,
        kind: AlertKind,
        detail: &str,
    ) -> Result<(), LedgerError> {
        let raised = sqlx::query!(
            "INSERT INTO alerts (payment_id, kind, detail) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            payment_id.as_str(),
            kind.as_str(),
            &*writes::storable(detail),
        )
        .execute(&self.pool)
        .await?;
        if raised.rows_affected() > 0 {
            tracing::error!(
                payment.id = payment_id.as_str(),
                alert.kind = kind.as_str(),
                detail,
                "alert raised"
            );
        }
        Ok(())
    }
}
