//! Proposing decisions.

use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::{Action, Decision};
use payment_protocol::ids::{DecisionId, PaymentId};
use postgres_kit::Connection;

use super::correct;
use super::rows::{self, NewDecision, checked_text, is_same_operator, validate_operator_and_reason};
use super::{DecideError, DecisionRefusedError, Proposal};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::{Ledger, LedgerError};
use payment_protocol::action::{Correction, OperatorAction};

impl Ledger {
    /// Proposes `action` on a payment that needs an operator. An action that moves no money is confirmed at once.
    /// A repeat of the proposal by the same operator returns the first one.
    ///
    /// Refusals in order of precedence: no operator, no reason, unknown payment, ended, not waiting for an operator, not allowed
    /// for its operator reason, no evidence (debit, release), another decision open.
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
    ) -> Result<Proposal, DecideError> {
        let (by, reason) = validate_operator_and_reason(by, reason)?;
        let evidence = checked_evidence(evidence)?;
        let mut tx = self.begin_decision().await?;
        let locked =
            lock_payment(&mut tx, payment_id).await.map_err(|error| as_decide_error(error, payment_id))?;
        check_allowed(&mut tx, &locked, action).await?;
        if action.moves_money() && evidence.is_none() {
            return Err(DecisionRefusedError::MissingEvidence(action).into());
        }
        let new = NewDecision {
            action: OperatorAction::OpenPayment(action),
            exception_id: None,
            by: &by,
            reason: &reason,
            evidence: evidence.as_deref(),
        };
        let (decision_id, is_new) = find_or_insert(&mut tx, &locked, &new).await?;
        let decision = Decision { decision_id: decision_id.clone(), action };
        let message = match (action.moves_money(), is_new) {
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
                Some(rows::insert_message(&mut tx, payment_id, decision).await?)
            }
            (false, false) => Some(rows::message(&mut tx, payment_id, decision).await?),
        };
        tx.commit().await?;
        Ok(Proposal { decision_id, message })
    }

    /// Proposes a correction for an open exception. It moves money when another operator confirms it.
    /// A repeat of the proposal by the same operator returns the first one.
    ///
    /// Refusals in order of precedence: no operator, no reason, unknown exception, exception without a payment, closed exception,
    /// payment still open, the correction's own conditions, no evidence where it depends on the switch, another
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
    ) -> Result<Proposal, DecideError> {
        let (by, reason) = validate_operator_and_reason(by, reason)?;
        let evidence = checked_evidence(evidence)?;
        let mut tx = self.begin_decision().await?;
        let locked = correct::lock_ended_payment(&mut tx, exception_id).await?;
        correct::check_allowed(&mut tx, &locked, correction).await?;
        if correction.needs_evidence() && evidence.is_none() {
            return Err(DecisionRefusedError::MissingCorrectionEvidence(correction).into());
        }
        let new = NewDecision {
            action: OperatorAction::Correction(correction),
            exception_id: Some(exception_id),
            by: &by,
            reason: &reason,
            evidence: evidence.as_deref(),
        };
        let (decision_id, _) = find_or_insert(&mut tx, &locked, &new).await?;
        tx.commit().await?;
        Ok(Proposal { decision_id, message: None })
    }
}

/// Whether `action` is allowed now: the payment needs an operator, for a reason that allows it.
pub(super) async fn check_allowed(
    tx: &mut Connection,
    locked: &LockedPayment,
    action: Action,
) -> Result<(), DecideError> {
    if let Some(end) = locked.facts.state.end() {
        return Err(DecisionRefusedError::Ended(end).into());
    }
    let row = sqlx::query!(
        "SELECT operator_reason FROM payments WHERE payment_id = $1",
        locked.payment_id.as_str()
    )
    .fetch_one(&mut *tx)
    .await?;
    let reason = row.operator_reason.as_deref().and_then(OperatorReason::parse);
    match reason {
        // The state is no criterion: after a late cancel attempt, a payment that needs an operator is shown as cancelling. Its
        // workflow checks again when it receives the decision.
        Some(reason) if reason.allowed().contains(&action) => Ok(()),
        Some(reason) => Err(DecisionRefusedError::ActionNotAllowed { action, reason }.into()),
        None => Err(DecisionRefusedError::NotWaiting(locked.facts.state).into()),
    }
}

/// Inserts the proposal, or finds the same one open. Returns whether it was inserted now.
async fn find_or_insert(
    tx: &mut Connection,
    locked: &LockedPayment,
    new: &NewDecision<'_>,
) -> Result<(DecisionId, bool), DecideError> {
    let payment_id = &locked.payment_id;
    let open = rows::of_payment(tx, payment_id).await?.into_iter().find(|row| row.closed_at.is_none());
    if let Some(open) = open {
        let is_repeat = open.action == new.action
            && open.exception_id == new.exception_id
            && is_same_operator(&open.proposed_by, new.by)
            && open.reason == new.reason
            && open.evidence.as_deref() == new.evidence;
        return if is_repeat {
            Ok((open.decision_id, false))
        } else {
            Err(DecisionRefusedError::AnotherDecisionOpen(open.decision_id).into())
        };
    }
    let decision_id = rows::insert(tx, payment_id, new).await?;
    let event = format!("{} proposed {}: {}", new.by, new.action, new.reason);
    rows::append_timeline(tx, payment_id, locked.facts.state, &decision_id, &event).await?;
    Ok((decision_id, true))
}

fn checked_evidence(evidence: Option<&str>) -> Result<Option<String>, DecisionRefusedError> {
    Ok(evidence.map(|evidence| checked_text("the evidence", evidence)).transpose()?.flatten())
}

pub(super) fn as_decide_error(error: LedgerError, payment_id: &PaymentId) -> DecideError {
    match error {
        LedgerError::UnknownPayment(_) => DecisionRefusedError::UnknownPayment(payment_id.clone()).into(),
        error => error.into(),
    }
}
