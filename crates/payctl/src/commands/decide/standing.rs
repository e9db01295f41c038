//! Decisions about a payment that stands before a person: proposed, confirmed, withdrawn.

use payment_ledger::Ledger;
use payment_ledger::operator::decisions::{ConfirmOutcome, DecisionStatus, DecisionView, OperatorAction};
use payment_protocol::decision::Action;
use payment_protocol::ids::{DecisionId, PaymentId};
use serde_json::json;

use super::wait::{self, Seen};
use super::{OfDecision, Said, not_taken};
use crate::bank::Bank;
use crate::out::{Out, plain};
use crate::outcome::Outcome;
use crate::{document, explain};

/// Proposes; what moves no money is carried out at once.
pub(super) async fn propose(
    bank: &Bank,
    payment: &PaymentId,
    action: Action,
    evidence: Option<&str>,
    said: &Said,
    out: &mut Out<'_>,
) -> anyhow::Result<Outcome> {
    let ledger = bank.ledger().await?;
    let proposed = ledger.propose(payment, action, &said.by, &said.reason, evidence).await;
    let proposed = proposed.map_err(not_taken)?;
    let id = &proposed.decision_id;
    match proposed.message {
        Some(message) => {
            remark(said, out, format_args!("decision {id}: {action}, on record"))?;
            let seen = wait::for_outcome(bank, &ledger, &message, id, said).await;
            tell(seen, said, out)
        }
        None => {
            let decision = ledger.decision(id).await.ok().flatten();
            if said.json {
                out.json(
                    &json!({ "decision_id": id, "decision": decision.as_ref().map(document::decision) }),
                )?;
            } else {
                out.line(format_args!("decision {id}: {action}, proposed by {}", plain(&said.by)))?;
                out.line(format_args!(
                    "another person confirms it: payctl decide confirm {id} --by NAME --reason TEXT"
                ))?;
            }
            Ok(Outcome::Done)
        }
    }
}

/// Confirms; what is about a standing payment is told to its workflow at once.
pub(super) async fn confirm(of: &OfDecision, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let OfDecision { decision: id, bank, said } = of;
    let bank = bank.read()?;
    let ledger = bank.ledger().await?;
    ask_the_switch_first(&bank, &ledger, id).await?;
    match ledger.confirm(id, &said.by, &said.reason).await.map_err(not_taken)? {
        ConfirmOutcome::ToApply(message) => {
            remark(said, out, format_args!("decision {id} is confirmed"))?;
            let seen = wait::for_outcome(&bank, &ledger, &message, id, said).await;
            tell(seen, said, out)
        }
        ConfirmOutcome::Corrected { detail } => {
            let decision = ledger.decision(id).await.ok().flatten();
            if said.json {
                out.json(&json!({
                    "decision_id": id,
                    "detail": detail,
                    "decision": decision.as_ref().map(document::decision),
                }))?;
            } else {
                out.line(format_args!("decision {id} is confirmed and booked: {}", plain(&detail)))?;
            }
            Ok(Outcome::Done)
        }
    }
}

/// A correction is booked here, so the switch is asked here; a decision about a standing payment asks by itself.
async fn ask_the_switch_first(bank: &Bank, ledger: &Ledger, id: &DecisionId) -> anyhow::Result<()> {
    let Some(decision) = ledger.decision(id).await? else { return Ok(()) };
    let (OperatorAction::Correction(correction), Some(payment)) = (decision.action, decision.payment_id)
    else {
        return Ok(());
    };
    if decision.status != DecisionStatus::Proposed || !correction.needs_evidence() {
        return Ok(());
    }
    explain::must_not_contradict(bank, ledger, &PaymentId::new(payment)?, correction).await
}

/// Takes back.
pub(super) async fn withdraw(of: &OfDecision, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let OfDecision { decision: id, bank, said } = of;
    let ledger = bank.read()?.ledger().await?;
    ledger.withdraw(id, &said.by, &said.reason).await.map_err(not_taken)?;
    if said.json {
        let decision = ledger.decision(id).await.ok().flatten();
        out.json(&json!({ "decision_id": id, "decision": decision.as_ref().map(document::decision) }))?;
    } else {
        out.line(format_args!("decision {id} is withdrawn"))?;
    }
    Ok(Outcome::Done)
}

fn remark(said: &Said, out: &mut Out<'_>, text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    // The document comes when everything is known.
    if !said.json {
        out.line(text)?;
    }
    Ok(())
}

/// What came of it, or what it still waits for.
fn tell(seen: Seen, said: &Said, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let Seen { decision_id, payment_id, decision, delivery } = &seen;
    let closed = decision.as_ref().filter(|decision| decision.closed_at.is_some());
    let outcome = closed.map_or(Outcome::StillOpen, outcome_of);
    if said.json {
        out.json(&json!({
            "decision_id": decision_id,
            "decision": decision.as_ref().map(document::decision),
            "delivery": delivery,
        }))?;
        return Ok(outcome);
    }
    match closed.and_then(document::result) {
        Some(result) => out.line(plain(&result))?,
        None => {
            out.line(plain(delivery))?;
            out.line(format_args!(
                "not carried out yet; it stays on record and is delivered until it is; to look again: payctl show \
                 {payment_id}"
            ))?;
        }
    }
    Ok(outcome)
}

fn outcome_of(decision: &DecisionView) -> Outcome {
    match decision.status {
        DecisionStatus::Done => Outcome::Done,
        _ => Outcome::NotAsItShouldBe,
    }
}
