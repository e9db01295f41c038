//! Payments that need an operator, and alerts.

use payment_protocol::PaymentState;
use payment_protocol::alert::AlertKind;
use payment_protocol::cause::OperatorReason;
use payment_protocol::exception::ExceptionKind;
use payment_protocol::ids::PaymentId;
use payment_protocol::port::NeedsOperatorOutcome;
use payment_protocol::rules;
use postgres_kit::text::replace_nul;

use crate::row_lock::lock_payment;
use crate::switch::final_status::open_exception_for_unconfirmed_callback;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, operator::decisions, writes};

impl Ledger {
    /// Records that the payment needs an operator, and raises the alert; or returns the recorded end or final status.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn needs_operator(
        &self,
        payment_id: &PaymentId,
        reason: OperatorReason,
    ) -> Result<NeedsOperatorOutcome, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        if let Some(end) = locked.facts.state.end() {
            return Ok(NeedsOperatorOutcome::Ended(end));
        }
        let recorded = sqlx::query!(
            "UPDATE payments SET operator_reason = $2, needs_operator_since = coalesce(needs_operator_since, clock_timestamp())
             WHERE payment_id = $1 AND (state <> 'needs_operator' OR operator_reason IS DISTINCT FROM $2)",
            payment_id.as_str(),
            reason.as_str(),
        )
        .execute(&mut *tx)
        .await?;
        if recorded.rows_affected() > 0 {
            let detail = format!("needs an operator: {reason}");
            writes::move_to_state(&mut tx, payment_id, PaymentState::NeedsOperator, &detail).await?;
        }
        decisions::reopen_delivery(&mut tx, payment_id).await?;
        if reason == OperatorReason::AcceptedThenUnknown {
            let kind = ExceptionKind::AcceptedThenUnknown;
            let detail = "the switch accepted the transfer, or reported by a callback that it settled, and says now that it does not know it";
            tx.open_exception(Some(payment_id), kind, payment_id.as_str(), detail).await?;
        }
        let detail = format!(
            "a callback says that the money left, no answer of the switch confirms it, and the payment needs an operator: {reason}"
        );
        open_exception_for_unconfirmed_callback(&mut tx, &locked, &detail).await?;
        tx.commit().await?;
        self.alert(payment_id, AlertKind::NeedsOperator, reason.as_str()).await?;
        Ok(rules::reported(&locked.facts)
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
            &*replace_nul(detail),
        )
        .execute(&self.pool)
        .await?;
        if raised.rows_affected() > 0 {
            tracing::error!(
                payment.id = payment_id.as_str(),
                alert.kind = kind.as_str(),
                detail,
                "the ledger recorded an alert for a payment; an operator must look at the payment (payctl stuck --older-than 1s)"
            );
        }
        Ok(())
    }
}
