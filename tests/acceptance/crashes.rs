//! Processes killed while a payment is open (S0.17, S2.1).

use anyhow::Context as _;
use serde_json::json;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use testkit::system::OPENING_MINOR;
use testkit::{System, SystemOptions};

/// How long the switch keeps back its answer, in milliseconds: until the worker is killed.
const ACCEPT_HANG_MS: u64 = 4_500;

#[tokio::test]
async fn s0_17_a_worker_killed_between_acceptance_and_answer_debits_once() -> anyhow::Result<()> {
    let options = SystemOptions::default()
        .with_profile("attempt_timeout_ms", ACCEPT_HANG_MS + 500)
        .with_profile("submit_budget_ms", 25_000);
    let mut system = System::start("killed-after-acceptance", options).await?;
    let accepted_late = json!({"outcome": "hold", "submit": [{"accept_hang_ms": ACCEPT_HANG_MS}]});
    system.switch.set_default_behaviour(accepted_late).await?;
    let payment = system.pay("5.00").await?;
    system.kill_worker_before_the_answer(&payment).await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.worker.restart().await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 1);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_17_a_worker_killed_after_reserve_does_not_reserve_again() -> anyhow::Result<()> {
    let options = SystemOptions::default().with_long_attempts();
    let mut system = System::start("killed-after-reserve", options).await?;
    // No submit reaches the switch, so the worker is killed between reserve and submit.
    let loses_submits = json!({"submit": [{"fault": "drop_request", "times": "always"}]});
    system.switch.set_default_behaviour(loses_submits).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "reserved").await?;
    system.worker.kill().await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    system.switch.set_default_behaviour(json!({})).await?;
    system.worker.restart().await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "reserved and debited once");
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_17_another_worker_continues_open_payments() -> anyhow::Result<()> {
    let mut system = System::start("another-worker", SystemOptions::default()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let mut payments = Vec::new();
    for _ in 0..5 {
        payments.push(system.pay("2.00").await?);
    }
    for payment in &payments {
        system.wait_for_state(&payment.payment_id, "submitted").await?;
    }
    let first = carrying_worker(&system, &payments[0].payment_id).await?;
    // The restarted worker is another process with another Temporal identity.
    system.worker.stop().await?;
    for payment in &payments {
        system.switch.finish_transfer(&payment.reference, "settle").await?;
    }
    system.worker.restart().await?;
    for payment in &payments {
        system.wait_for_state(&payment.payment_id, "settled").await?;
    }
    assert_eq!(system.audit().await?.debited, 5);
    let second = carrying_worker(&system, &payments[0].payment_id).await?;
    assert!(first.starts_with("payment-worker pid "), "{first}");
    assert!(second.starts_with("payment-worker pid ") && second != first, "{first}, {second}");
    Ok(())
}

/// The worker that began the last workflow task, as `payctl worker` reads it.
async fn carrying_worker(system: &System, payment_id: &str) -> anyhow::Result<String> {
    let history = system.history(payment_id).await?;
    let last = history.into_iter().rev().find_map(|event| match event.attributes {
        Some(Attributes::WorkflowTaskStartedEventAttributes(started)) => Some(started.identity),
        _ => None,
    });
    last.context("no workflow task began")
}

#[tokio::test]
async fn s0_6_a_stored_callback_without_a_signal_is_delivered_later() -> anyhow::Result<()> {
    let mut system = System::start("webhook-killed", SystemOptions::default()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    // The state after payments-api was killed between storing the callback and signalling the workflow.
    system.api.kill().await?;
    sqlx::query(
        "WITH stored AS (
             INSERT INTO switch_callbacks (switch, event_id, payment_id, reference, status, amount_minor, currency, body)
             VALUES ('mock', 'evt-stored', $1, $2, 'SUCCESS', 500, 'EUR', ''::bytea))
         UPDATE payments SET final_status = 'settled', final_status_source = 'callback', state = 'confirmed' WHERE payment_id = $1",
    )
    .bind(&payment.payment_id)
    .bind(&payment.reference)
    .execute(&system.database.pool)
    .await?;
    sqlx::query("INSERT INTO inbox (payment_id, kind, switch, event_id) VALUES ($1, 'callback', 'mock', 'evt-stored')")
        .bind(&payment.payment_id)
        .execute(&system.database.pool)
        .await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    // Now the transfer has the status that the stored callback reported.
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.api.restart().await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s2_1_a_killed_mock_switch_keeps_accepted_transfers() -> anyhow::Result<()> {
    let mut system = System::start("switch-killed", SystemOptions::default()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    system.mock_switch.kill().await?;
    system.mock_switch.restart().await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
