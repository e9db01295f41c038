//! R30b: a payment-worker is connected to a Temporal namespace that does not have the open payments' workflows.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;
use testkit::system::Operators;
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// Time limit for the worker to end.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn r30b_a_worker_in_another_temporal_namespace_recovers_nothing() -> anyhow::Result<()> {
    let mut system = System::start("other-namespace", SystemOptions::default().with_long_attempts()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;

    // The worker's namespace is now another one than the recorded one, and lacks the workflow, as any other one does.
    let connected: String = sqlx::query_scalar("SELECT namespace_id FROM temporal_namespaces")
        .fetch_one(&system.database.pool)
        .await?;
    let operators = system.operators(&["ann", "ben"]).await?;
    accept(&system, &operators, "another").await?;
    system.delete_workflow(&payment.payment_id).await?;
    let advice = format!("payctl temporal-namespace accept {connected}");
    system.worker.wait_for_log(&advice).await?;
    until("the worker has ended", WITHIN, || {
        let exited = system.worker.has_exited();
        async move { Ok(exited?.then_some(())) }
    })
    .await?;
    ensure!(resumes(&system).await? == 0, "a payment was resumed in another namespace");

    // Operators accept the namespace, so the payment is lost.
    accept(&system, &operators, &connected).await?;
    system.worker.restart().await?;
    system.wait_until_all_have_ended().await?;
    ensure!(resumes(&system).await? > 0, "the payment was not resumed");
    ensure!(system.switch.request_count(&payment.reference, "submit").await? == 1, "expected one submit");
    system.audit().await?;
    Ok(())
}

/// Ann proposes a namespace, and ben confirms it.
async fn accept(system: &System, operators: &Operators, namespace: &str) -> anyhow::Result<()> {
    let reason = ["--reason", "a restore"];
    let propose = [&["temporal-namespace", "accept", namespace], &reason[..]].concat();
    let proposed = operators.run(system, "ann", &propose).await?;
    let id = proposed.split_whitespace().find(|word| word.starts_with("chg_"));
    let id = id.with_context(|| format!("no change was proposed: {proposed}"))?;
    operators.run(system, "ben", &[&["changes", "confirm", id], &reason[..]].concat()).await?;
    Ok(())
}

async fn resumes(system: &System) -> anyhow::Result<i64> {
    let sum = "SELECT sum(resume_count)::bigint FROM payments";
    Ok(sqlx::query_scalar(sum).fetch_one(&system.database.pool).await?)
}
