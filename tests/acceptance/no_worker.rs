//! payments-api needs PostgreSQL only: it accepts payments while no worker runs them (R12).

use std::time::Duration;

use anyhow::Context as _;
use testkit::environment::TestEnvironment;
use testkit::proxy::FaultProxy;
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// Time limit for an answer of the worker.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn r12_a_payment_accepted_while_no_worker_runs_is_started_later() -> anyhow::Result<()> {
    let mut system = System::start("no-worker", SystemOptions::default()).await?;
    system.worker.kill().await?;
    let payment = system.pay("5.00").await?;
    assert_eq!(system.state(&payment.payment_id).await?, "accepted");
    let cancelled = system.pay("6.00").await?;
    assert_eq!(system.cancel(&cancelled.payment_id).await?.status(), 202);
    system.worker.restart().await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    system.wait_for_state(&cancelled.payment_id, "cancelled").await?;
    assert_eq!(system.switch.request_count(&cancelled.reference, "submit").await?, 0);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

/// A release whose Temporal address is wrong must not replace the one that works.
#[tokio::test]
async fn a_payment_worker_is_ready_once_it_is_connected_to_temporal() -> anyhow::Result<()> {
    let temporal = TestEnvironment::load()?.temporal_address;
    let proxy =
        FaultProxy::start(temporal.strip_prefix("http://").context("an address without TLS")?).await?;
    let temporal_address = Some(format!("http://{}", proxy.address));
    let mut system =
        System::start("worker-readiness", SystemOptions { temporal_address, ..SystemOptions::default() })
            .await?;
    system.worker.kill().await?;
    proxy.refuse(true);
    proxy.cut();
    system.worker.spawn()?;
    let url = format!("{}/ready", system.worker.url());
    let answer = until("the worker answers", WITHIN, || async { Ok(reqwest::get(&url).await.ok()) }).await?;
    assert_eq!(answer.status(), 503);
    let problem: serde_json::Value = answer.json().await?;
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("it waits for Temporal"), "{problem}");
    assert_eq!(reqwest::get(format!("{}/health", system.worker.url())).await?.status(), 200);

    proxy.refuse(false);
    until("the worker is ready", WITHIN, || async { Ok(system.worker.is_ready().await.then_some(())) })
        .await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    system.audit().await?;
    Ok(())
}
