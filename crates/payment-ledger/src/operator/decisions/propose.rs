//! Proposing: what one person says should be done, and why.

use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::{Action, Decision};
use payment_protocol::ids::{DecisionId, PaymentId};
use sqlx::PgConnection;

use super::correct;
use super::rows::{self, New, said, same_person, words};
use super::{Correction, DecideError, DecisionRefused, OperatorAction, Proposed};
use crate::row_lock::{Locked, lock};
use crate::{Ledger, LedgerError};

impl Ledger {
    /// Proposes `action` about a payment that stands before a person. What moves no money is confirmed at once.
    /// The same proposal of the same person again is the first one.
    ///
    /// Refusals in order of precedence: no name, no reason, unknown payment, ended, not standing, not allowed for
    /// the reason it stands for, no evidence (settle, release), another decision open.
    ///
    /// # Errors
    /// [`DecideError`].
    pub async fn propose(
        &self,
        payment_id: &PaymentId,
        action: Action,
        by: &str,
        reason: &str,
        evidence: Option<&str>,
    ) -> Result<Proposed, DecideError> {
        let (by, reason) = said(by, reason)?;
        let evidence = tidy(evidence)?;
        let mut tx = self.pool.begin().await?;
        let locked = lock(&mut tx, payment_id).await.map_err(|error| unknown(error, payment_id))?;
        allowed(&mut tx, &locked, action).await?;
        if action.moves_money() && evidence.is_none() {
            return Err(DecisionRefused::NoEvidence(action).into());
        }
        let new = New {
            deed: OperatorAction::Standing(action),
            exception_id: None,
            by: &by,
            reason: &reason,
            evidence: evidence.as_deref(),
        };
        let (decision_id, first) = write(&mut tx, &locked, &new).await?;
        let decision = Decision { decision_id: decision_id.clone(), action };
        let message = match (action.moves_money(), first) {
            (true, _) => None,
            (false, true) => {
                sqlx::query!(
                    "UPDATE decisions SET status = 'confirmed', confirmed_by = proposed_by, confirm_reason = reason,
                            confirmed_at = clock_timestamp()
                     WHERE decision_id = $1",
                    decision_id.as_str(),
                )
                .execute(&mut *tx)
                .await?;
                Some(rows::put_notice(&mut tx, payment_id, decision).await?)
            }
            (false, false) => Some(rows::message(&mut tx, payment_id, decision).await?),
        };
        tx.commit().await?;
        Ok(Proposed { decision_id, message })
    }

    /// Proposes a correction of what an open exception tells. It moves money when another person confirms it.
    /// The same proposal of the same person again is the first one.
    ///
    /// Refusals in order of precedence: no name, no reason, unknown exception, no payment of ours, closed exception,
    /// payment still open, what the correction itself refuses, no evidence where it rests on what the switch did, another
    /// decision open.
    ///
    /// # Errors
    /// [`DecideError`].
    pub async fn propose_correction(
        &self,
        exception_id: i64,
        correction: Correction,
        by: &str,
        reason: &str,
        evidence: Option<&str>,
    ) -> Result<Proposed, DecideError> {
        let (by, reason) = said(by, reason)?;
        let evidence = tidy(evidence)?;
        let mut tx = self.pool.begin().await?;
        let locked = correct::linked(&mut tx, exception_id).await?;
        correct::allowed(&mut tx, &locked, correction).await?;
        if correction.rests_on_the_switch() && evidence.is_none() {
            return Err(DecisionRefused::CorrectionWithoutEvidence(correction).into());
        }
        let new = New {
            deed: OperatorAction::Correction(correction),
            exception_id: Some(exception_id),
            by: &by,
            reason: &reason,
            evidence: evidence.as_deref(),
        };
        let (decision_id, _) = write(&mut tx, &locked, &new).await?;
        tx.commit().await?;
        Ok(Proposed { decision_id, message: None })
    }
}

/// Whether `action` may be decided now: the payment came to stand, for a reason that allows it.
pub(super) async fn allowed(
    tx: &mut PgConnection,
    locked: &Locked,
    action: Action,
) -> Result<(), DecideError> {
    if let Some(end) = locked.facts.state.end() {
        return Err(DecisionRefused::Ended(end).into());
    }
    let row = sqlx::query!(
        "SELECT operator_reason FROM payments WHERE payment_id = $1",
        locked.payment_id.as_str()
    )
    .fetch_one(&mut *tx)
    .await?;
    let reason = row.operator_reason.as_deref().and_then(OperatorReason::parse);
    match reason {
        // Not the state: an asking that was paused and comes late shows a payment that stands as cancelling. Whether
        // it stands now is for its workflow to say, when the decision comes there.
        Some(reason) if reason.allowed().contains(&action) => Ok(()),
        Some(reason) => Err(DecisionRefused::NotAllowed { action, reason }.into()),
        None => Err(DecisionRefused::NotStanding(locked.facts.state).into()),
    }
}

/// Writes the proposal, or finds the open one that is the same. Says whether it was written now.
async fn write(
    tx: &mut PgConnection,
    locked: &Locked,
    new: &New<'_>,
) -> Result<(DecisionId, bool), DecideError> {
    let payment_id = &locked.payment_id;
    let open = rows::of_payment(tx, payment_id).await?.into_iter().find(|row| row.closed_at.is_none());
    if let Some(open) = open {
        let same = open.deed == new.deed
            && open.exception_id == new.exception_id
            && same_person(&open.proposed_by, new.by)
            && open.reason == new.reason
            && open.evidence.as_deref() == new.evidence;
        return if same {
            Ok((open.decision_id, false))
        } else {
            Err(DecisionRefused::AnotherIsOpen(open.decision_id).into())
        };
    }
    let decision_id = rows::insert(tx, payment_id, new).await?;
    let told = format!("{} proposed {}: {}", new.by, new.deed, new.reason);
    rows::tell(tx, payment_id, locked.facts.state, &decision_id, &told).await?;
    Ok((decision_id, true))
}

fn tidy(evidence: Option<&str>) -> Result<Option<String>, DecisionRefused> {
    Ok(evidence.map(|evidence| words("the evidence", evidence)).transpose()?.flatten())
}

fn unknown(error: LedgerError, payment_id: &PaymentId) -> DecideError {
    match error {
        LedgerError::UnknownPayment(_) => DecisionRefused::UnknownPayment(payment_id.clone()).into(),
        error => error.into(),
    }
}
