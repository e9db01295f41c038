//! Two people who decide, as the operators' command does it: one proposes, another confirms, and the
//! relay tells the workflow.

use std::time::Duration;

use anyhow::Context as _;
use payment_ledger::Ledger;
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::ids::{DecisionId, PaymentId};
use testkit::System;
use testkit::wait::until;

/// Time for a decision to be carried out.
const WITHIN: Duration = Duration::from_secs(60);

/// Decides, and gives the decision's id.
pub(crate) async fn decide(system: &System, payment_id: &str, action: Action) -> anyhow::Result<DecisionId> {
    let ledger = Ledger::new(system.database.pool.clone());
    let payment = PaymentId::new(payment_id)?;
    let evidence = action.moves_money().then_some("the switch's operator said so, ticket 4711");
    let proposed = ledger.propose(&payment, action, "ann", "no answer decides it", evidence).await?;
    if action.moves_money() {
        ledger.confirm(&proposed.decision_id, "ben", "I looked as well").await?;
    }
    Ok(proposed.decision_id)
}

/// Waits for what comes of a decision.
pub(crate) async fn outcome(system: &System, decision: &DecisionId) -> anyhow::Result<DecisionOutcome> {
    let ledger = Ledger::new(system.database.pool.clone());
    until(&format!("{decision} is carried out"), WITHIN, || async {
        Ok(ledger.decision_outcome(decision).await?)
    })
    .await
    .context(system.worker.log_tail())
}

/// Waits until the relay has nothing left to tell.
pub(crate) async fn told(system: &System) -> anyhow::Result<()> {
    let ledger = Ledger::new(system.database.pool.clone());
    until("everything is told", WITHIN, || async {
        Ok((ledger.undelivered().await?.count == 0).then_some(()))
    })
    .await
}
