//! Closing an exception where no money is to move: one person, and why.

use payment_protocol::ids::DecisionId;
use sqlx::PgConnection;

use super::correct;
use super::rows::{self, said, same_person};
use super::{Correction, DecideError, DecisionRefused, OperatorAction};
use crate::Ledger;
use crate::writes::Exception;

impl Ledger {
    /// Closes an exception without moving money. The same close by the same person again is the first one.
    ///
    /// Refusals in order of precedence: no name, no reason, unknown exception, closed, and a payment that is still open
    /// where the exception is what keeps it from being released unasked (`not_sent`, `confirmation_mismatch`), and what the
    /// claims account bears.
    ///
    /// # Errors
    /// [`DecideError`].
    pub async fn close_exception(
        &self,
        exception_id: i64,
        by: &str,
        reason: &str,
    ) -> Result<DecisionId, DecideError> {
        let (by, reason) = said(by, reason)?;
        let mut tx = self.pool.begin().await?;
        let locked = match correct::open_exception(&mut tx, exception_id).await {
            Err(DecideError::Refused(DecisionRefused::ExceptionClosed(_))) => {
                return closed_before(&mut tx, exception_id, &by, &reason).await;
            }
            locked => locked?,
        };
        let kind = sqlx::query_scalar!("SELECT kind FROM exceptions WHERE exception_id = $1", exception_id)
            .fetch_one(&mut *tx)
            .await?;
        if let Some(locked) = locked.as_ref().filter(|locked| locked.facts.state.end().is_none())
            && [Exception::SettledWithoutAttempt, Exception::ConfirmationMismatch]
                .iter()
                .any(|fact| fact.as_str() == kind)
        {
            return Err(DecisionRefused::StillOpen(locked.facts.state).into());
        }
        if let Some(locked) = locked.as_ref().filter(|_| kind == Exception::DebitedToClaims.as_str())
            && correct::allowed(&mut tx, locked, Correction::WriteOff).await.is_ok()
        {
            return Err(DecisionRefused::BornByClaims(exception_id).into());
        }
        // Written closed: it takes no room from a decision that is open.
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
            let told = format!("{by} closed exception {exception_id} ({kind}): {reason}");
            rows::tell(&mut tx, &locked.payment_id, locked.facts.state, &decision_id, &told).await?;
        }
        tx.commit().await?;
        Ok(decision_id)
    }
}

async fn closed_before(
    tx: &mut PgConnection,
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
        && same_person(&row.proposed_by, by)
        && row.reason == reason
    {
        Ok(rows::decision_id(&row.decision_id)?)
    } else {
        Err(DecisionRefused::ExceptionClosed(exception_id).into())
    }
}
