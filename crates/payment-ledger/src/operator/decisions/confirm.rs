//! Confirming and withdrawing: what the second person says.

use payment_protocol::decision::Decision;
use payment_protocol::ids::{DecisionId, PaymentId};
use sqlx::PgConnection;

use super::correct;
use super::propose::allowed;
use super::rows::{self, said, same_person};
use super::{Confirmed, DecideError, DecisionRefused, DecisionStatus, DecisionView, OperatorAction};
use crate::row_lock::{Locked, lock};
use crate::{Ledger, LedgerError};

impl Ledger {
    /// Confirms a proposal by another person's name, compared trimmed and without regard to case. A decision about a
    /// standing payment goes into the inbox, in the same transaction; a correction is made in it. The same
    /// confirmation again gets the same answer.
    ///
    /// Refusals in order of precedence: no name, no reason, unknown decision, closed, confirmed by another, the
    /// proposer's own name, and then all that refuses the proposal.
    ///
    /// # Errors
    /// [`DecideError`].
    pub async fn confirm(
        &self,
        decision_id: &DecisionId,
        by: &str,
        reason: &str,
    ) -> Result<Confirmed, DecideError> {
        let (by, reason) = said(by, reason)?;
        let mut tx = self.pool.begin().await?;
        let (decision, locked) = locked(&mut tx, decision_id).await?;
        let repeated = decision.confirmed_by.as_deref().is_some_and(|first| same_person(first, &by));
        match (decision.status, decision.confirmed_by.as_deref()) {
            (DecisionStatus::Proposed, _) => {}
            _ if repeated => return again(&mut tx, &locked, decision).await,
            (DecisionStatus::Confirmed | DecisionStatus::Done, Some(first)) => {
                return Err(DecisionRefused::AlreadyConfirmed(first.to_owned()).into());
            }
            (status, _) => return Err(DecisionRefused::Closed(status).into()),
        }
        if same_person(&decision.proposed_by, &by) {
            return Err(DecisionRefused::SamePerson(decision.proposed_by).into());
        }
        let confirmed = match (decision.deed, decision.exception_id) {
            (OperatorAction::Standing(action), _) => {
                allowed(&mut tx, &locked, action).await?;
                write(&mut tx, &locked, &decision, &by, &reason).await?;
                let decision = Decision { decision_id: decision.decision_id, action };
                Confirmed::ToCarryOut(rows::put_notice(&mut tx, &locked.payment_id, decision).await?)
            }
            (OperatorAction::Correction(correction), Some(exception_id)) => {
                let locked = correct::linked(&mut tx, exception_id).await?;
                correct::allowed(&mut tx, &locked, correction).await?;
                write(&mut tx, &locked, &decision, &by, &reason).await?;
                let detail = correct::book(&mut tx, &locked, correction, decision_id, exception_id).await?;
                Confirmed::Corrected { detail }
            }
            // Closed in the transaction that wrote it.
            (OperatorAction::Correction(_), None) | (OperatorAction::Close, _) => {
                return Err(DecisionRefused::Closed(decision.status).into());
            }
        };
        tx.commit().await?;
        Ok(confirmed)
    }

    /// Takes a proposal back; whoever does it is on record. Withdrawing it again changes nothing.
    ///
    /// Refusals in order of precedence: no name, no reason, unknown decision, confirmed, closed.
    ///
    /// # Errors
    /// [`DecideError`].
    pub async fn withdraw(
        &self,
        decision_id: &DecisionId,
        by: &str,
        reason: &str,
    ) -> Result<(), DecideError> {
        let (by, reason) = said(by, reason)?;
        let mut tx = self.pool.begin().await?;
        let (decision, locked) = locked(&mut tx, decision_id).await?;
        match decision.status {
            DecisionStatus::Proposed => {}
            DecisionStatus::Withdrawn => return Ok(()),
            DecisionStatus::Confirmed => return Err(DecisionRefused::UnderWay.into()),
            status => return Err(DecisionRefused::Closed(status).into()),
        }
        let told = format!("withdrawn by {by}: {reason}");
        rows::close(&mut tx, decision_id, DecisionStatus::Withdrawn, None, &told).await?;
        rows::tell(&mut tx, &locked.payment_id, locked.facts.state, decision_id, &told).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// A decision that waits for a second person, read under its payment's lock.
async fn locked(
    tx: &mut PgConnection,
    decision_id: &DecisionId,
) -> Result<(DecisionView, Locked), DecideError> {
    let unknown = || DecisionRefused::UnknownDecision(decision_id.clone());
    let found = rows::find(tx, decision_id).await?.ok_or_else(unknown)?;
    // Of no payment: the close of an exception, which one person makes at once.
    let Some(payment_id) = found.payment_id else { return Err(DecisionRefused::Closed(found.status).into()) };
    let payment_id = PaymentId::new(payment_id.as_str()).map_err(|_| LedgerError::Unreadable {
        id: decision_id.to_string(),
        column: "payment_id",
        value: payment_id,
    })?;
    let locked = lock(tx, &payment_id).await?;
    // What was read before the lock may be of another time.
    let decision = rows::find(tx, decision_id).await?.ok_or_else(unknown)?;
    Ok((decision, locked))
}

/// What the same person was told the first time.
async fn again(
    tx: &mut PgConnection,
    locked: &Locked,
    decision: DecisionView,
) -> Result<Confirmed, DecideError> {
    Ok(match decision.deed {
        OperatorAction::Standing(action) => {
            let decision = Decision { decision_id: decision.decision_id, action };
            Confirmed::ToCarryOut(rows::message(tx, &locked.payment_id, decision).await?)
        }
        OperatorAction::Correction(_) | OperatorAction::Close => {
            Confirmed::Corrected { detail: decision.detail.unwrap_or_default() }
        }
    })
}

async fn write(
    tx: &mut PgConnection,
    locked: &Locked,
    decision: &DecisionView,
    by: &str,
    reason: &str,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "UPDATE decisions SET status = 'confirmed', confirmed_by = $2, confirm_reason = $3, confirmed_at = clock_timestamp()
         WHERE decision_id = $1",
        decision.decision_id.as_str(),
        by,
        reason,
    )
    .execute(&mut *tx)
    .await?;
    let told = format!("{by} confirmed {}: {reason}", decision.deed);
    rows::tell(tx, &locked.payment_id, locked.facts.state, &decision.decision_id, &told).await
}
