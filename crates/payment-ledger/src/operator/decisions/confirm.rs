//! Confirming and withdrawing decisions: the four-eyes approval by a second operator.

use payment_protocol::action::OperatorAction;
use payment_protocol::decision::Decision;
use payment_protocol::ids::{DecisionId, PaymentId};
use postgres_kit::Connection;

use super::correct;
use super::propose::check_allowed;
use super::rows::{self, is_same_operator, validate_operator_and_reason};
use super::{ConfirmOutcome, DecideError, DecisionRefusedError, DecisionStatus, DecisionView};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::{Ledger, LedgerError};

impl Ledger {
    /// Confirms a proposal by another operator; names are compared trimmed and without regard to case. A decision about an
    /// open payment is written to the inbox and a correction is booked, in the same transaction. A repeat of the
    /// confirmation returns the same outcome.
    ///
    /// Refusals in order of precedence: no operator, no reason, unknown decision, closed, confirmed by another, the
    /// proposer's own name, a proposer who may not propose any more, a proposal older than 7 days, and then every refusal of the proposal.
    ///
    /// # Errors
    /// [`DecideError`].
    pub async fn confirm(
        &self,
        decision_id: &DecisionId,
        by: &str,
        reason: &str,
    ) -> Result<ConfirmOutcome, DecideError> {
        let (by, reason) = validate_operator_and_reason(by, reason)?;
        let mut tx = self.begin_decision().await?;
        let (decision, locked) = lock_decision(&mut tx, decision_id).await?;
        let is_repeat = decision.confirmed_by.as_deref().is_some_and(|first| is_same_operator(first, &by));
        match (decision.status, decision.confirmed_by.as_deref()) {
            (DecisionStatus::Proposed, _) => {}
            _ if is_repeat => return repeated_outcome(&mut tx, &locked, decision).await,
            (DecisionStatus::Confirmed | DecisionStatus::Done, Some(first)) => {
                return Err(DecisionRefusedError::AlreadyConfirmed(first.to_owned()).into());
            }
            (status, _) => return Err(DecisionRefusedError::Closed(status).into()),
        }
        if is_same_operator(&decision.proposed_by, &by) {
            return Err(DecisionRefusedError::SameOperator(decision.proposed_by).into());
        }
        check_proposal(&mut tx, &decision).await?;
        let confirmed = match (decision.action, decision.exception_id) {
            (OperatorAction::OpenPayment(action), _) => {
                check_allowed(&mut tx, &locked, action).await?;
                record_confirmation(&mut tx, &locked, &decision, &by, &reason).await?;
                let decision = Decision { decision_id: decision.decision_id, action };
                ConfirmOutcome::ToApply(rows::insert_message(&mut tx, &locked.payment_id, decision).await?)
            }
            (OperatorAction::Correction(correction), Some(exception_id)) => {
                let locked = correct::lock_ended_payment(&mut tx, exception_id).await?;
                correct::check_allowed(&mut tx, &locked, correction).await?;
                record_confirmation(&mut tx, &locked, &decision, &by, &reason).await?;
                let detail = correct::book(&mut tx, &locked, correction, decision_id, exception_id).await?;
                ConfirmOutcome::Corrected { detail }
            }
            // Closed in the transaction that inserted it.
            (OperatorAction::Correction(_), None) | (OperatorAction::Close, _) => {
                return Err(DecisionRefusedError::Closed(decision.status).into());
            }
        };
        tx.commit().await?;
        Ok(confirmed)
    }

    /// Withdraws a proposal and records the operator, who may be any operator. A repeat changes nothing.
    ///
    /// Refusals in order of precedence: no operator, no reason, unknown decision, confirmed, closed.
    ///
    /// # Errors
    /// [`DecideError`].
    pub async fn withdraw(
        &self,
        decision_id: &DecisionId,
        by: &str,
        reason: &str,
    ) -> Result<(), DecideError> {
        let (by, reason) = validate_operator_and_reason(by, reason)?;
        let mut tx = self.begin_decision().await?;
        let (decision, locked) = lock_decision(&mut tx, decision_id).await?;
        match decision.status {
            DecisionStatus::Proposed => {}
            DecisionStatus::Withdrawn => return Ok(()),
            DecisionStatus::Confirmed => return Err(DecisionRefusedError::AlreadyApplying.into()),
            status => return Err(DecisionRefusedError::Closed(status).into()),
        }
        let event = format!("withdrawn by {by}: {reason}");
        sqlx::query!(
            "UPDATE decisions SET status = 'withdrawn', withdrawn_by = $2, detail = $3, closed_at = clock_timestamp()
             WHERE decision_id = $1",
            decision_id.as_str(),
            by,
            event,
        )
        .execute(&mut *tx)
        .await?;
        rows::append_timeline(&mut tx, &locked.payment_id, locked.facts.state, decision_id, &event).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// Of an attacker's or a forgotten proposal, the confirmation would be the only look.
async fn check_proposal(tx: &mut Connection, decision: &DecisionView) -> Result<(), DecideError> {
    let proposal = sqlx::query!(
        r#"SELECT may_propose_no_more(proposed_by) AS "is_barred!", is_old_proposal(proposed_at) AS "is_old!"
           FROM decisions WHERE decision_id = $1"#,
        decision.decision_id.as_str(),
    )
    .fetch_one(tx)
    .await?;
    if proposal.is_barred {
        return Err(DecisionRefusedError::ProposerBarred(decision.proposed_by.clone()).into());
    }
    if proposal.is_old {
        return Err(DecisionRefusedError::TooOld.into());
    }
    Ok(())
}

/// A decision with its payment, read under the payment's lock.
async fn lock_decision(
    tx: &mut Connection,
    decision_id: &DecisionId,
) -> Result<(DecisionView, LockedPayment), DecideError> {
    let unknown = || DecisionRefusedError::UnknownDecision(decision_id.clone());
    let decision = rows::find(tx, decision_id).await?.ok_or_else(unknown)?;
    // Without a payment: the close of an exception, which one operator makes at once.
    let Some(payment_id) = decision.payment_id else {
        return Err(DecisionRefusedError::Closed(decision.status).into());
    };
    let payment_id = PaymentId::new(payment_id.as_str()).map_err(|_| LedgerError::Unreadable {
        id: decision_id.to_string(),
        column: "payment_id",
        value: payment_id,
    })?;
    let locked = lock_payment(tx, &payment_id).await?;
    // The decision may have changed before the lock was granted.
    let decision = rows::find(tx, decision_id).await?.ok_or_else(unknown)?;
    Ok((decision, locked))
}

/// The answer to the first confirmation, for its repeat.
async fn repeated_outcome(
    tx: &mut Connection,
    locked: &LockedPayment,
    decision: DecisionView,
) -> Result<ConfirmOutcome, DecideError> {
    Ok(match decision.action {
        OperatorAction::OpenPayment(action) => {
            let decision = Decision { decision_id: decision.decision_id, action };
            ConfirmOutcome::ToApply(rows::message(tx, &locked.payment_id, decision).await?)
        }
        OperatorAction::Correction(_) | OperatorAction::Close => {
            ConfirmOutcome::Corrected { detail: decision.detail.unwrap_or_default() }
        }
    })
}

async fn record_confirmation(
    tx: &mut Connection,
    locked: &LockedPayment,
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
    let event = format!("{by} confirmed {}: {reason}", decision.action);
    rows::append_timeline(tx, &locked.payment_id, locked.facts.state, &decision.decision_id, &event).await
}
