//! Path B: the SLA passes without a callback. The same asking; the answer decides (S0.9).

use serde_json::json;
use testkit::system::OPENING_MINOR;
use testkit::{Options, System};

fn short_sla() -> Options {
    Options::default().profile("sla_ms", 1_000)
}

#[tokio::test]
async fn s0_9_s0_17_an_expired_sla_cancels_a_pending_transfer() -> anyhow::Result<()> {
    let system = System::start("path-b-pending", short_sla()).await?;
    system.switch.behave(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "timed_out").await?;
    assert_eq!(system.switch.status(&payment.reference).await?.as_deref(), Some("CANCELLED"));
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn s0_9_a_lost_callback_settles_forward_when_the_switch_had_settled() -> anyhow::Result<()> {
    let system = System::start("path-b-settled", short_sla()).await?;
    system.switch.behave(json!({"callback": {"lose": true}})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_9_a_switch_that_refuses_to_cancel_is_waited_for() -> anyhow::Result<()> {
    let system = System::start("path-b-refused", short_sla()).await?;
    system
        .switch
        .behave(json!({"outcome": "hold", "cancel": [{"fault": "refuse", "times": "always"}]}))
        .await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "cancelling").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "held while it may still settle");
    system.switch.decide(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_9_a_failure_reported_only_leads_to_asking() -> anyhow::Result<()> {
    let system = System::start("path-b-failure", Options::default().unhurried()).await?;
    system.switch.behave(json!({"outcome": "reject", "reject_reason": "blocked"})).await?;
    let rejected = system.pay("5.00").await?;
    system.wait_for_state(&rejected.payment_id, "failed").await?;
    assert_eq!(system.switch.requests(&rejected.reference, "cancel").await?, 1);

    // FAILURE first, then it settles all the same: the answer to the cancel decides.
    system.switch.behave(json!({"settle_after_ms": 0, "callback": {"contradict": "failure_first"}})).await?;
    let settled = system.pay("6.00").await?;
    system.wait_for_state(&settled.payment_id, "settled").await?;
    let seen = system.payment(&settled.payment_id).await?;
    assert!(seen["reason"].is_null(), "a settled payment has nothing to explain: {seen}");
    assert_eq!(system.available().await?, OPENING_MINOR - 600);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
