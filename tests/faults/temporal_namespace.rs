//! R30b: a payment-worker is connected to a Temporal namespace that does not have the open payments' workflows.

use std::time::Duration;

use anyhow::ensure;
use payment_ledger::Ledger;
use serde_json::json;
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// Time limit for one step.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn r30b_a_worker_in_another_temporal_namespace_recovers_nothing() -> anyhow::Result<()> {
    let mut system = System::start("other-namespace", SystemOptions::default()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;

    // The worker's namespace is now another one than the recorded one, and lacks the workflow, as any other one does.
    let ledger = Ledger::new(system.database.pool.clone());
    let connected = ledger.temporal_namespace("").await?;
    ensure!(
        ledger.accept_temporal_namespace("another", "ann", "a test").await?,
        "expected another namespace"
    );
    system.delete_workflow(&payment.payment_id).await?;
    let advice = format!("payctl temporal-namespace accept {connected}");
    until("the payment-worker ends", WITHIN, || async {
        Ok(system.worker.log_tail().contains(&advice).then_some(()))
    })
    .await?;
    ensure!(resumes(&system).await? == 0, "a payment was resumed in another namespace");

    // An operator accepts the namespace, so the payment is lost.
    ensure!(ledger.accept_temporal_namespace(&connected, "ann", "a test").await?, "expected a change");
    system.worker.restart().await?;
    system.wait_until_all_have_ended().await?;
    ensure!(resumes(&system).await? > 0, "the payment was not resumed");
    ensure!(system.switch.request_count(&payment.reference, "submit").await? == 1, "expected one submit");
    system.audit().await?;
    Ok(())
}

async fn resumes(system: &System) -> anyhow::Result<i64> {
    let sum = "SELECT sum(resume_count)::bigint FROM payments";
    Ok(sqlx::query_scalar(sum).fetch_one(&system.database.pool).await?)
}
