//! Applying a decision about an open payment: its end, the final status if the switch gave none, the money, and the close of
//! the decision, in one transaction.

use payment_protocol::action::OperatorAction;
use payment_protocol::cause::Cause;
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::facts::{FinalStatus, HoldStatus, ReserveRecord};
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::rules::{self, DebitByDecisionRuling, DecisionRefusal, ReleaseByDecisionRuling};
use payment_protocol::state::FinalState;
use payment_protocol::{PaymentState, keys};
use postgres_kit::Connection;

use super::{DecisionStatus, charge, rows};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::steps::release::{release_hold, write_cause};
use crate::switch::{final_status, returns};
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, steps::reserve, writes};

impl Ledger {
    /// The outcome of a decision; `None` while the decision is open, or if its workflow recorded no outcome.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn decision_outcome(
        &self,
        decision_id: &DecisionId,
    ) -> Result<Option<DecisionOutcome>, LedgerError> {
        Ok(self.decision(decision_id).await?.and_then(|decision| decision.outcome))
    }

    /// Closes a confirmed decision with its outcome. The first close is kept.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn close_decision(
        &self,
        decision_id: &DecisionId,
        outcome: &DecisionOutcome,
        detail: &str,
    ) -> Result<(), LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let Some(decision) = rows::find(&mut tx, decision_id).await? else { return Ok(()) };
        let Some(payment_id) = decision.payment_id.and_then(|id| PaymentId::new(id).ok()) else {
            return Ok(());
        };
        let locked = lock_payment(&mut tx, &payment_id).await?;
        let confirmed = rows::find(&mut tx, decision_id)
            .await?
            .is_some_and(|decision| decision.status == DecisionStatus::Confirmed);
        // An unconfirmed decision stays open even if a caller knows its id.
        if confirmed {
            close(&mut tx, &locked, decision_id, outcome, detail).await?;
            if *outcome == DecisionOutcome::RetryCancel && locked.facts.state == PaymentState::NeedsOperator {
                let event = "retrying the cancel at the switch";
                writes::move_to_state(&mut tx, &payment_id, PaymentState::Cancelling, event).await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }

    /// Debits by a decision, once, under `{tx_id}:debit:{decision_id}`, and ends the payment as settled: from the hold if the
    /// account may be debited, else from the customer or the claims account ([`charge`]). A repeat returns the same
    /// outcome.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn debit_by_decision(
        &self,
        payment_id: &PaymentId,
        decision_id: &DecisionId,
    ) -> Result<DebitByDecisionRuling, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        match readiness(&mut tx, payment_id, decision_id, Action::Debit).await? {
            DecisionReadiness::Ready => {}
            DecisionReadiness::Applied(DecisionOutcome::Settled) => return Ok(DebitByDecisionRuling::Charge),
            DecisionReadiness::Applied(DecisionOutcome::Ended(end)) => {
                return Ok(DebitByDecisionRuling::Ended(end));
            }
            DecisionReadiness::Applied(_) | DecisionReadiness::NotConfirmed => {
                return Ok(DebitByDecisionRuling::Refused(DecisionRefusal::NotConfirmed));
            }
        }
        let ruling = rules::debit_by_decision(&locked.facts);
        match ruling {
            DebitByDecisionRuling::Refused(_) => return Ok(ruling),
            DebitByDecisionRuling::Ended(end) => close_as_ended(&mut tx, &locked, decision_id, end).await?,
            DebitByDecisionRuling::Charge => {
                let charged = charge::by_decision(&mut tx, &locked, decision_id).await?;
                write_final_status(&mut tx, &locked, FinalStatus::Settled).await?;
                close(&mut tx, &locked, decision_id, &DecisionOutcome::Settled, &charged).await?;
                let detail = format!("transfer sent, by decision {decision_id}: {charged}");
                writes::move_to_state(&mut tx, payment_id, PaymentState::Settled, &detail).await?;
                returns::book_kept(&mut tx, &locked).await?;
            }
        }
        tx.commit().await?;
        Ok(ruling)
    }

    /// Releases by a decision, once, under `{tx_id}:comp-reserve:{decision_id}`, and ends the payment for the first
    /// recorded cause ([`Cause::ReleasedByDecision`] without one), which is returned. Without a hold it
    /// writes the fence, so that a late reserve is refused. A repeat returns the same outcome.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn release_by_decision(
        &self,
        payment_id: &PaymentId,
        decision_id: &DecisionId,
    ) -> Result<(ReleaseByDecisionRuling, Cause), LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        let cause = rules::first_cause(&locked.facts, &Cause::ReleasedByDecision);
        match readiness(&mut tx, payment_id, decision_id, Action::Release).await? {
            DecisionReadiness::Ready => {}
            DecisionReadiness::Applied(DecisionOutcome::Released(cause)) => {
                return Ok((ReleaseByDecisionRuling::Release, cause));
            }
            DecisionReadiness::Applied(DecisionOutcome::Ended(end)) => {
                return Ok((ReleaseByDecisionRuling::Ended(end), cause));
            }
            DecisionReadiness::Applied(_) | DecisionReadiness::NotConfirmed => {
                return Ok((ReleaseByDecisionRuling::Refused(DecisionRefusal::NotConfirmed), cause));
            }
        }
        let ruling = rules::release_by_decision(&locked.facts);
        match ruling {
            ReleaseByDecisionRuling::Refused(_) => return Ok((ruling, cause)),
            ReleaseByDecisionRuling::Ended(end) => close_as_ended(&mut tx, &locked, decision_id, end).await?,
            ReleaseByDecisionRuling::Release => {
                let key = keys::compensate_reserve_by_decision(&locked.tx_id, decision_id);
                match (locked.facts.hold, locked.facts.reserve) {
                    (Some(HoldStatus::Open), _) => release_hold(&mut tx, &locked, &key).await?,
                    (_, None) => reserve::fence(&mut tx, payment_id).await?,
                    (_, Some(ReserveRecord::Held | ReserveRecord::Refused(_))) => {}
                }
                writes::record_done(&mut tx, key.as_str(), payment_id).await?;
                write_final_status(&mut tx, &locked, FinalStatus::Void).await?;
                write_cause(&mut tx, payment_id, &cause).await?;
                let outcome = DecisionOutcome::Released(cause.clone());
                close(&mut tx, &locked, decision_id, &outcome, "nothing was charged").await?;
                let detail = format!("nothing was charged, by decision {decision_id}: {cause}");
                writes::move_to_state(&mut tx, payment_id, cause.end().into(), &detail).await?;
                returns::close_kept(&mut tx, &locked).await?;
            }
        }
        tx.commit().await?;
        Ok((ruling, cause))
    }
}

/// Whether a decision is to be applied now.
enum DecisionReadiness {
    /// Confirmed and open.
    Ready,
    /// Applied before: return the same outcome.
    Applied(DecisionOutcome),
    /// Not recorded as this action on this payment, or not confirmed.
    NotConfirmed,
}

async fn readiness(
    tx: &mut Connection,
    payment_id: &PaymentId,
    decision_id: &DecisionId,
    action: Action,
) -> Result<DecisionReadiness, LedgerError> {
    let decision = rows::find(tx, decision_id).await?.filter(|decision| {
        decision.payment_id.as_deref() == Some(payment_id.as_str())
            && decision.action == OperatorAction::OpenPayment(action)
    });
    Ok(match decision.map(|decision| (decision.status, decision.outcome)) {
        Some((DecisionStatus::Confirmed, _)) => DecisionReadiness::Ready,
        Some((_, Some(outcome))) => DecisionReadiness::Applied(outcome),
        _ => DecisionReadiness::NotConfirmed,
    })
}

async fn close_as_ended(
    tx: &mut Connection,
    locked: &LockedPayment,
    decision_id: &DecisionId,
    end: FinalState,
) -> Result<(), LedgerError> {
    close(tx, locked, decision_id, &DecisionOutcome::Ended(end), "the payment had ended").await
}

/// Writes the final status unless the switch's own is recorded.
async fn write_final_status(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    decided: FinalStatus,
) -> Result<(), LedgerError> {
    if locked.facts.final_status.is_none() {
        final_status::write(tx, &locked.payment_id, decided, "decision").await?;
        if decided == FinalStatus::Settled {
            final_status::open_exceptions_for_callbacks(tx, locked).await?;
        } else {
            let event = "operators released the amount";
            final_status::open_exception_for_denied_callback(tx, locked, event).await?;
        }
    }
    Ok(())
}

async fn close(
    tx: &mut Connection,
    locked: &LockedPayment,
    decision_id: &DecisionId,
    outcome: &DecisionOutcome,
    detail: &str,
) -> Result<(), LedgerError> {
    let (status, event) = match outcome {
        DecisionOutcome::Refused { .. } | DecisionOutcome::Ended(_) => {
            (DecisionStatus::Refused, "was not applied")
        }
        DecisionOutcome::Settled
        | DecisionOutcome::Released(_)
        | DecisionOutcome::RetryCancel
        | DecisionOutcome::FinalStatus(_) => (DecisionStatus::Done, "was applied"),
    };
    rows::close(tx, decision_id, status, Some(outcome), detail).await?;
    let event = format!("{event}: {detail}");
    rows::append_timeline(tx, &locked.payment_id, locked.facts.state, decision_id, &event).await
}
