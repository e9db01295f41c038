//! Operator decisions as `payctl decide` makes them: one operator proposes, another confirms, and the background worker
//! delivers the decision to the workflow.

use std::time::Duration;

use anyhow::Context as _;
use payment_ledger::Ledger;
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::ids::{DecisionId, PaymentId};
use testkit::System;
use testkit::wait::until;

/// Time limit for a decision to be applied.
const WITHIN: Duration = Duration::from_secs(60);

/// Proposes a decision and confirms it if the action moves money; returns the decision's id.
pub(crate) async fn decide(system: &System, payment_id: &str, action: Action) -> anyhow::Result<DecisionId> {
    let ledger = Ledger::new(system.database.pool.clone());
    let payment = PaymentId::new(payment_id)?;
    let evidence = action.moves_money().then_some("confirmed by the switch, ticket 4711");
    let proposed =
        ledger.propose(&payment, action, "ann", "no answer of the switch decides it", evidence).await?;
    if action.moves_money() {
        ledger.confirm(&proposed.decision_id, "ben", "verified").await?;
    }
    Ok(proposed.decision_id)
}

/// Waits for the outcome of a decision.
pub(crate) async fn outcome(system: &System, decision: &DecisionId) -> anyhow::Result<DecisionOutcome> {
    let ledger = Ledger::new(system.database.pool.clone());
    until(&format!("{decision} has an outcome"), WITHIN, || async {
        Ok(ledger.decision_outcome(decision).await?)
    })
    .await
    .context(system.worker.log_tail())
}

/// Waits until every inbox message is delivered.
pub(crate) async fn wait_until_inbox_empty(system: &System) -> anyhow::Result<()> {
    let ledger = Ledger::new(system.database.pool.clone());
    until("every inbox message is delivered", WITHIN, || async {
        Ok((ledger.undelivered().await?.count == 0).then_some(()))
    })
    .await
}
