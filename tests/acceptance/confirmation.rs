//! A payment without failures: accepted, reserved, submitted, confirmed, settled (S0.3 to S0.7).

use std::time::{Duration, Instant};

use serde_json::json;
use temporalio_client::{UntypedSignal, WorkflowSignalOptions};
use temporalio_common::data_converters::RawValue;
use testkit::system::OPENING_MINOR;
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// How long the switch keeps back its answer to a submit, in milliseconds: longer than its callbacks take.
const ACCEPT_HANG_MS: u64 = 10_000;
/// Time limit for the delivery of callbacks.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn s0_3_to_s0_7_r23_payments_end_as_the_switch_confirms() -> anyhow::Result<()> {
    let options = SystemOptions::default()
        .with_profile("attempt_timeout_ms", ACCEPT_HANG_MS + 1_000)
        .with_profile("submit_budget_ms", 47_000);
    let mut system = System::start("confirmation", options).await?;
    s0_3_to_s0_7_a_confirmed_payment_is_debited_once(&mut system).await?;
    s0_6_repeated_callbacks_before_the_submit_returns_debit_once(&mut system).await?;
    s0_6_a_success_with_another_amount_is_debited_if_the_switch_says_the_amount_when_queried(&mut system)
        .await?;
    s0_3_a_payment_with_a_refused_reserve_sends_nothing_to_the_switch(&mut system).await?;
    r23_an_unreadable_workflow_signal_changes_nothing(&mut system).await?;
    Ok(())
}

async fn s0_3_to_s0_7_a_confirmed_payment_is_debited_once(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    // Held so that the callback arrives after the bank has recorded `submitted`.
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("12.50").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;

    assert_eq!(system.available().await?, OPENING_MINOR - 1_250);
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 1);
    let timeline = system.timeline(&payment.payment_id).await?;
    let states: Vec<_> = timeline.iter().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(states, ["accepted", "reserved", "submitted", "confirmed", "settled"], "{timeline:#?}");
    let audit = system.audit().await?;
    assert_eq!((audit.payments, audit.debited, audit.open), (1, 1, 0));
    Ok(())
}

#[tokio::test]
async fn s0_5_the_wait_for_confirmation_survives_a_worker_without_a_cache() -> anyhow::Result<()> {
    let options = SystemOptions { cached_workflows: 0, ..SystemOptions::default() };
    let system = System::start("uncached", options).await?;
    let payment = system.pay("1.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    system.audit().await?;
    Ok(())
}

async fn s0_6_repeated_callbacks_before_the_submit_returns_debit_once(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let hang = json!([{"accept_hang_ms": ACCEPT_HANG_MS}]);
    let behaviour = json!({"settle_after_ms": 0, "submit": hang, "callback": {"copies": 20}});
    system.switch.set_default_behaviour(behaviour).await?;
    let ordered = Instant::now();
    let payment = system.pay("3.00").await?;
    until("the switch has delivered every copy", WITHIN, || async {
        let copies = system.switch.callbacks(&payment.reference).await.unwrap_or_default();
        let delivered = copies.iter().filter(|copy| copy["state"] == "DELIVERED").count();
        Ok((delivered == 20).then_some(()))
    })
    .await?;
    assert!(ordered.elapsed() < Duration::from_millis(ACCEPT_HANG_MS), "the submit had returned before");
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 300);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_6_a_success_with_another_amount_keeps_the_hold() -> anyhow::Result<()> {
    // A query would say the true amount.
    let options = SystemOptions::default().with_long_attempts().with_profile("confirm_by_query", "never");
    let system = System::start("differs", options).await?;
    system.switch.set_default_behaviour(json!({"callback": {"amount_minor": 99}})).await?;
    let payment = system.pay("4.00").await?;
    system.wait_for_state(&payment.payment_id, "needs_operator").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 400);
    assert_eq!(system.exceptions(&payment.payment_id).await?, ["confirmation_mismatch"]);

    system
        .switch
        .send_callback(&payment.reference, json!({"status": "SUCCESS", "amount_minor": 400}))
        .await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn s0_6_a_success_with_another_amount_is_debited_if_the_switch_says_the_amount_when_queried(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"callback": {"amount_minor": 99}})).await?;
    let payment = system.pay("4.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 400);
    assert_eq!(system.exceptions(&payment.payment_id).await?, ["confirmation_mismatch"]);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn s0_3_a_payment_with_a_refused_reserve_sends_nothing_to_the_switch(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let payment = system.pay("10000.01").await?;
    system.wait_for_state(&payment.payment_id, "rejected").await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.payment(&payment.payment_id).await?["reason"], "insufficient_funds");
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 0);
    system.audit().await?;
    Ok(())
}

async fn r23_an_unreadable_workflow_signal_changes_nothing(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    let workflow = system.workflow(&payment.payment_id).await?;
    for name in ["switchConfirmed", "cancelled?", "finalStatusRecorded"] {
        workflow
            .signal(UntypedSignal::new(name), RawValue::empty(), WorkflowSignalOptions::default())
            .await?;
    }
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
