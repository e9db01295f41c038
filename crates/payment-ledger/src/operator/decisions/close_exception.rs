//! Closing an exception without moving money: one operator, with a reason.

use payment_protocol::action::{Correction, OperatorAction};
use payment_protocol::exception::ExceptionKind;
use payment_protocol::ids::DecisionId;
use postgres_kit::Connection;

use super::correct;
use super::rows::{self, is_same_operator, validate_operator_and_reason};
use super::{DecideError, DecisionRefusedError};
use crate::Ledger;

impl Ledger {
    /// Closes an exception without moving money. A repeat by the same operator returns the first decision.
    ///
    /// Refusals in order of precedence: no operator, no reason, unknown exception, closed exception, a payment that is still open
    /// and that the exception keeps from being released (`settled_without_attempt`, `confirmation_mismatch`), and an amount that is
    /// still on the claims account.
    ///
    /// # Errors
    /// [`DecideError`].
    pub async fn close_exception(
        &self,
        exception_id: i64,
        by: &str,
        reason: &str,
    ) -> Result<DecisionId, DecideError> {
        let (by, reason) = validate_operator_and_reason(by, reason)?;
        let mut tx = self.begin_decision().await?;
        let locked = match correct::lock_exception(&mut tx, exception_id).await {
            Err(DecideError::Refused(DecisionRefusedError::ExceptionClosed(_))) => {
                return repeated_close(&mut tx, exception_id, &by, &reason).await;
            }
            locked => locked?,
        };
        let kind = sqlx::query_scalar!("SELECT kind FROM exceptions WHERE exception_id = $1", exception_id)
            .fetch_one(&mut *tx)
            .await?;
        if let Some(locked) = locked.as_ref().filter(|locked| locked.facts.state.end().is_none())
            && [ExceptionKind::SettledWithoutAttempt, ExceptionKind::ConfirmationMismatch]
                .iter()
                .any(|fact| fact.as_str() == kind)
        {
            return Err(DecisionRefusedError::PaymentOpen(locked.facts.state).into());
        }
        if let Some(locked) = locked.as_ref().filter(|_| kind == ExceptionKind::DebitedToClaims.as_str())
            && correct::check_allowed(&mut tx, locked, Correction::WriteOff).await.is_ok()
        {
            return Err(DecisionRefusedError::OnClaimsAccount(exception_id).into());
        }
        // Inserted closed: it does not count as the payment's open decision.
        let id = sqlx::query_scalar!(
            "INSERT INTO decisions (decision_id, payment_id, exception_id, action, reason, proposed_by, confirmed_by,
                                    confirm_reason, confirmed_at, status, detail, closed_at)
             VALUES ('dec_' || left(replace(gen_random_uuid()::text, '-', ''), 20), $1, $2, 'close', $3, $4, $4,
                     $3, clock_timestamp(), 'done', $5, clock_timestamp())
             RETURNING decision_id",
            locked.as_ref().map(|locked| locked.payment_id.as_str()),
            exception_id,
            reason,
            by,
            format!("{kind} closed, no money moved"),
        )
        .fetch_one(&mut *tx)
        .await?;
        let decision_id = rows::decision_id(&id)?;
        correct::close_exception(&mut tx, exception_id, &decision_id).await?;
        if let Some(locked) = &locked {
            let event = format!("{by} closed exception {exception_id} ({kind}): {reason}");
            rows::append_timeline(&mut tx, &locked.payment_id, locked.facts.state, &decision_id, &event)
                .await?;
        }
        tx.commit().await?;
        Ok(decision_id)
    }
}

async fn repeated_close(
    tx: &mut Connection,
    exception_id: i64,
    by: &str,
    reason: &str,
) -> Result<DecisionId, DecideError> {
    let row = sqlx::query!(
        "SELECT d.decision_id, d.action, d.proposed_by, d.reason
         FROM exceptions e JOIN decisions d ON d.decision_id = e.closed_by WHERE e.exception_id = $1",
        exception_id,
    )
    .fetch_one(&mut *tx)
    .await?;
    if row.action == OperatorAction::Close.as_str()
        && is_same_operator(&row.proposed_by, by)
        && row.reason == reason
    {
        Ok(rows::decision_id(&row.decision_id)?)
    } else {
        Err(DecisionRefusedError::ExceptionClosed(exception_id).into())
    }
}
