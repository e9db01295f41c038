//! Path B: no callback within the SLA, or FAILURE. The bank cancels at the switch, and the switch's answer decides (S0.9).

use anyhow::Context as _;
use serde_json::json;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use testkit::system::OPENING_MINOR;
use testkit::temporal::EventType;
use testkit::{System, SystemOptions};

fn short_sla() -> SystemOptions {
    SystemOptions::default().with_profile("sla_ms", 1_000)
}

#[tokio::test]
async fn s0_9_path_b_after_the_sla() -> anyhow::Result<()> {
    let mut system = System::start("path-b", short_sla()).await?;
    s0_9_s0_17_an_expired_sla_cancels_a_pending_transfer(&mut system).await?;
    s0_9_a_payment_with_a_lost_success_callback_ends_settled(&mut system).await?;
    s0_9_a_refused_cancel_keeps_the_hold_until_the_switch_decides(&mut system).await?;
    Ok(())
}

async fn s0_9_s0_17_an_expired_sla_cancels_a_pending_transfer(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "timed_out").await?;
    assert_eq!(system.switch.transfer_status(&payment.reference).await?.as_deref(), Some("CANCELLED"));
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

async fn s0_9_a_payment_with_a_lost_success_callback_ends_settled(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"callback": {"lose": true}})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn s0_9_a_refused_cancel_keeps_the_hold_until_the_switch_decides(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    system
        .switch
        .set_default_behaviour(json!({"outcome": "hold", "cancel": [{"fault": "refuse", "times": "always"}]}))
        .await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "cancelling").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "held while the transfer may still settle");
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_9_a_failure_callback_leads_to_a_cancel() -> anyhow::Result<()> {
    let system = System::start("path-b-failure", SystemOptions::default().with_long_attempts()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "reject", "reject_reason": "blocked"})).await?;
    let rejected = system.pay("5.00").await?;
    system.wait_for_state(&rejected.payment_id, "failed").await?;
    assert_eq!(system.switch.request_count(&rejected.reference, "cancel").await?, 1);

    // The switch sends FAILURE and settles nevertheless: its answer to the cancel decides.
    system
        .switch
        .set_default_behaviour(json!({"settle_after_ms": 0, "callback": {"contradict": "failure_first"}}))
        .await?;
    let settled = system.pay("6.00").await?;
    system.wait_for_state(&settled.payment_id, "settled").await?;
    let shown = system.payment(&settled.payment_id).await?;
    assert!(shown["reason"].is_null(), "expected no reason for a settled payment: {shown}");
    assert_eq!(system.available().await?, OPENING_MINOR - 600);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

/// Of a payment at a switch whose profile sets no SLA; the timer of the SLA is the first timer of the workflow.
#[tokio::test]
async fn s0_5_the_default_sla_is_sixty_seconds() -> anyhow::Result<()> {
    let mut options = SystemOptions::default().with_long_attempts();
    options.profile.as_object_mut().context("the profile is not an object")?.remove("sla_ms");
    let system = System::start("default-sla", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    let started = system.wait_for_event(&payment.payment_id, EventType::TimerStarted).await?;
    let Some(Attributes::TimerStartedEventAttributes(timer)) = started.attributes else {
        anyhow::bail!("{started:?}");
    };
    let sla = timer.start_to_fire_timeout.context("the timer has no duration")?;
    assert_eq!((sla.seconds, sla.nanos), (60, 0));
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
