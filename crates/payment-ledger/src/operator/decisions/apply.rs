//! Carrying out what two people decided about a payment that stands before them: its end, the final_status where the switch
//! gave none, the money, and the decision's own close, in one transaction.

use payment_protocol::cause::Cause;
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::facts::{FinalStatus, HoldStatus, ReserveRecord};
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::rules::{self, DebitByDecisionRuling, DecisionRefusal, ReleaseByDecisionRuling};
use payment_protocol::state::FinalState;
use payment_protocol::{PaymentState, keys};
use sqlx::PgConnection;

use super::{DecisionStatus, OperatorAction, charge, rows};
use crate::row_lock::{Locked, lock};
use crate::steps::release::{give_back, write_cause};
use crate::{Ledger, LedgerError, steps::reserve, switch::final_status, writes};

impl Ledger {
    /// What came of a decision; none while it is open, or when none of the workflow's doing is on record.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn decision_outcome(
        &self,
        decision_id: &DecisionId,
    ) -> Result<Option<DecisionOutcome>, LedgerError> {
        Ok(self.decision(decision_id).await?.and_then(|decision| decision.outcome))
    }

    /// Closes a confirmed decision with what came of it. The first close stands.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn close_decision(
        &self,
        decision_id: &DecisionId,
        came: &DecisionOutcome,
        detail: &str,
    ) -> Result<(), LedgerError> {
        let mut tx = self.pool.begin().await?;
        let Some(found) = rows::find(&mut tx, decision_id).await? else { return Ok(()) };
        let Some(payment_id) = found.payment_id.and_then(|id| PaymentId::new(id).ok()) else { return Ok(()) };
        let locked = lock(&mut tx, &payment_id).await?;
        let confirmed = rows::find(&mut tx, decision_id)
            .await?
            .is_some_and(|decision| decision.status == DecisionStatus::Confirmed);
        // What was not confirmed still waits for people, whoever carried its id here.
        if confirmed {
            close(&mut tx, &locked, decision_id, came, detail).await?;
            if *came == DecisionOutcome::RetryCancel && locked.facts.state == PaymentState::NeedsOperator {
                let told = "asking the switch again";
                writes::state(&mut tx, &payment_id, PaymentState::Cancelling, told).await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }

    /// Debits by a decision, once, under `{tx_id}:debit:{decision_id}`, and ends the payment as settled: what is held
    /// where the account may be debited, else the customer or the claims account ([`charge`]). A repeat gets the same
    /// answer.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn debit_by_decision(
        &self,
        payment_id: &PaymentId,
        decision_id: &DecisionId,
    ) -> Result<DebitByDecisionRuling, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock(&mut tx, payment_id).await?;
        match to_carry_out(&mut tx, payment_id, decision_id, Action::Debit).await? {
            ToCarryOut::Now => {}
            ToCarryOut::Before(DecisionOutcome::Settled) => return Ok(DebitByDecisionRuling::Charge),
            ToCarryOut::Before(DecisionOutcome::Ended(end)) => return Ok(DebitByDecisionRuling::Ended(end)),
            ToCarryOut::Before(_) | ToCarryOut::NotConfirmed => {
                return Ok(DebitByDecisionRuling::Refused(DecisionRefusal::NotConfirmed));
            }
        }
        let ruling = rules::debit_by_decision(&locked.facts);
        match ruling {
            DebitByDecisionRuling::Refused(_) => return Ok(ruling),
            DebitByDecisionRuling::Ended(end) => ended(&mut tx, &locked, decision_id, end).await?,
            DebitByDecisionRuling::Charge => {
                let booked = charge::by_decision(&mut tx, &locked, decision_id).await?;
                write_verdict(&mut tx, &locked, FinalStatus::Settled).await?;
                close(&mut tx, &locked, decision_id, &DecisionOutcome::Settled, &booked).await?;
                let detail = format!("transfer sent, by decision {decision_id}: {booked}");
                writes::state(&mut tx, payment_id, PaymentState::Settled, &detail).await?;
            }
        }
        tx.commit().await?;
        Ok(ruling)
    }

    /// Releases by a decision, once, under `{tx_id}:comp-reserve:{decision_id}`, and ends the payment for the first
    /// recorded cause ([`Cause::ReleasedByDecision`] if there is none), which is returned. Where nothing is held it
    /// writes the fence that makes a late reserve refuse. A repeat gets the same answer.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn release_by_decision(
        &self,
        payment_id: &PaymentId,
        decision_id: &DecisionId,
    ) -> Result<(ReleaseByDecisionRuling, Cause), LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock(&mut tx, payment_id).await?;
        let cause = rules::first_cause(&locked.facts, &Cause::ReleasedByDecision);
        match to_carry_out(&mut tx, payment_id, decision_id, Action::Release).await? {
            ToCarryOut::Now => {}
            ToCarryOut::Before(DecisionOutcome::Released(cause)) => {
                return Ok((ReleaseByDecisionRuling::Release, cause));
            }
            ToCarryOut::Before(DecisionOutcome::Ended(end)) => {
                return Ok((ReleaseByDecisionRuling::Ended(end), cause));
            }
            ToCarryOut::Before(_) | ToCarryOut::NotConfirmed => {
                return Ok((ReleaseByDecisionRuling::Refused(DecisionRefusal::NotConfirmed), cause));
            }
        }
        let ruling = rules::release_by_decision(&locked.facts);
        match ruling {
            ReleaseByDecisionRuling::Refused(_) => return Ok((ruling, cause)),
            ReleaseByDecisionRuling::Ended(end) => ended(&mut tx, &locked, decision_id, end).await?,
            ReleaseByDecisionRuling::Release => {
                let key = keys::compensate_reserve_by_decision(&locked.tx_id, decision_id);
                match (locked.facts.hold, locked.facts.reserve) {
                    (Some(HoldStatus::Open), _) => give_back(&mut tx, &locked, &key).await?,
                    (_, None) => reserve::fence(&mut tx, payment_id).await?,
                    (_, Some(ReserveRecord::Held | ReserveRecord::Refused(_))) => {}
                }
                writes::done(&mut tx, key.as_str(), payment_id).await?;
                write_verdict(&mut tx, &locked, FinalStatus::Void).await?;
                write_cause(&mut tx, payment_id, &cause).await?;
                let came = DecisionOutcome::Released(cause.clone());
                close(&mut tx, &locked, decision_id, &came, "nothing was charged").await?;
                let detail = format!("nothing was charged, by decision {decision_id}: {cause}");
                writes::state(&mut tx, payment_id, cause.end().into(), &detail).await?;
            }
        }
        tx.commit().await?;
        Ok((ruling, cause))
    }
}

/// What a decision's row says to whoever comes to carry it out.
enum ToCarryOut {
    /// Confirmed and open.
    Now,
    /// Carried out before: the same answer again.
    Before(DecisionOutcome),
    /// Not on record as this action about this payment, confirmed by two people.
    NotConfirmed,
}

async fn to_carry_out(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    decision_id: &DecisionId,
    action: Action,
) -> Result<ToCarryOut, LedgerError> {
    let decision = rows::find(tx, decision_id).await?.filter(|decision| {
        decision.payment_id.as_deref() == Some(payment_id.as_str())
            && decision.deed == OperatorAction::Standing(action)
    });
    Ok(match decision.map(|decision| (decision.status, decision.outcome)) {
        Some((DecisionStatus::Confirmed, _)) => ToCarryOut::Now,
        Some((_, Some(outcome))) => ToCarryOut::Before(outcome),
        _ => ToCarryOut::NotConfirmed,
    })
}

async fn ended(
    tx: &mut PgConnection,
    locked: &Locked,
    decision_id: &DecisionId,
    end: FinalState,
) -> Result<(), LedgerError> {
    close(tx, locked, decision_id, &DecisionOutcome::Ended(end), "the payment had ended").await
}

/// The switch's own answer stands where there is one.
async fn write_verdict(tx: &mut PgConnection, locked: &Locked, said: FinalStatus) -> Result<(), LedgerError> {
    if locked.facts.final_status.is_none() {
        final_status::write(tx, &locked.payment_id, said, "decision").await?;
        if said == FinalStatus::Settled {
            final_status::note_earlier_failures(tx, locked).await?;
        }
    }
    Ok(())
}

async fn close(
    tx: &mut PgConnection,
    locked: &Locked,
    decision_id: &DecisionId,
    came: &DecisionOutcome,
    detail: &str,
) -> Result<(), LedgerError> {
    let (status, told) = match came {
        DecisionOutcome::Refused { .. } | DecisionOutcome::Ended(_) => {
            (DecisionStatus::Refused, "was not carried out")
        }
        DecisionOutcome::Settled
        | DecisionOutcome::Released(_)
        | DecisionOutcome::RetryCancel
        | DecisionOutcome::FinalStatus(_) => (DecisionStatus::Done, "was carried out"),
    };
    rows::close(tx, decision_id, status, Some(came), detail).await?;
    let told = format!("{told}: {detail}");
    rows::tell(tx, &locked.payment_id, locked.facts.state, decision_id, &told).await
}
