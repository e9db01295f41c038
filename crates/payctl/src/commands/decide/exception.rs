//! Decisions about an exception: corrections, which two people make, and closing without money.

use payment_ledger::operator::decisions::Correction;
use serde_json::json;

use super::{OfException, not_taken};
use crate::document;
use crate::out::{Out, plain};
use crate::outcome::Outcome;

/// Proposes a correction; it is booked when another person confirms.
pub(super) async fn correct(
    of: &OfException,
    correction: Correction,
    out: &mut Out<'_>,
) -> anyhow::Result<Outcome> {
    let OfException { exception, evidence, bank, said } = of;
    let ledger = bank.read()?.ledger().await?;
    let proposed =
        ledger.propose_correction(*exception, correction, &said.by, &said.reason, evidence.as_deref()).await;
    let id = proposed.map_err(not_taken)?.decision_id;
    if said.json {
        let decision = ledger.decision(&id).await.ok().flatten();
        out.json(&json!({ "decision_id": id, "decision": decision.as_ref().map(document::decision) }))?;
    } else {
        let by = plain(&said.by);
        out.line(format_args!("decision {id}: {correction} of exception {exception}, proposed by {by}"))?;
        out.line(format_args!(
            "another person confirms it: payctl decide confirm {id} --by NAME --reason TEXT"
        ))?;
    }
    Ok(Outcome::Done)
}

/// Closes; no money moves.
pub(super) async fn close(of: &OfException, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let OfException { exception, evidence, bank, said } = of;
    anyhow::ensure!(evidence.is_none(), "closing an exception takes a reason and no evidence");
    let ledger = bank.read()?.ledger().await?;
    let id = ledger.close_exception(*exception, &said.by, &said.reason).await.map_err(not_taken)?;
    if said.json {
        let decision = ledger.decision(&id).await.ok().flatten();
        out.json(&json!({ "decision_id": id, "decision": decision.as_ref().map(document::decision) }))?;
    } else {
        out.line(format_args!("exception {exception} is closed by decision {id}; no money moved"))?;
    }
    Ok(Outcome::Done)
}
