//! A switch without callbacks is polled, by query or statement, until the transfer has ended (S0.16).

use std::time::Duration;

use serde_json::json;
use testkit::System;
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::wait::until;

use crate::switch_kinds::{no_callback, statement_only};

/// Waits until the switch has received so many queries of the payment.
async fn wait_for_queries(system: &System, payment: &AcceptedPayment, count: i64) -> anyhow::Result<()> {
    until(&format!("the switch receives {count} queries"), Duration::from_secs(30), || async {
        Ok((system.switch.request_count(&payment.reference, "query").await? >= count).then_some(()))
    })
    .await
}

#[tokio::test]
async fn s0_16_a_switch_without_callbacks_is_polled() -> anyhow::Result<()> {
    let mut system = System::start("polled", no_callback().with_profile("sla_ms", 60_000)).await?;
    s0_16_a_switch_without_callbacks_settles_by_polling_before_the_sla(&mut system).await?;
    s0_16_a_rejection_found_by_polling_leads_to_a_cancel(&mut system).await?;
    s0_16_polling_without_a_result_adds_no_workflow_events(&mut system).await?;
    s0_16_a_customers_cancel_interrupts_polling(&mut system).await?;
    Ok(())
}

async fn s0_16_a_switch_without_callbacks_settles_by_polling_before_the_sla(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    wait_for_queries(system, &payment, 2).await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(
        system.switch.request_count(&payment.reference, "cancel").await?,
        0,
        "expected no cancel request"
    );
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn s0_16_a_rejection_found_by_polling_leads_to_a_cancel(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "reject"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert_eq!(system.switch.request_count(&payment.reference, "cancel").await?, 1);
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

async fn s0_16_polling_without_a_result_adds_no_workflow_events(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    wait_for_queries(system, &payment, 3).await?;
    let workflow = system.workflow(&payment.payment_id).await?;
    let before = workflow.describe(Default::default()).await?.history_length();
    wait_for_queries(system, &payment, 8).await?;
    assert_eq!(workflow.describe(Default::default()).await?.history_length(), before);
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn s0_16_a_customers_cancel_interrupts_polling(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    system.cancel(&payment.payment_id).await?.error_for_status()?;
    system.wait_for_state(&payment.payment_id, "cancelled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn s0_16_a_payment_at_a_switch_with_only_a_statement_settles() -> anyhow::Result<()> {
    let system = System::start("statement", statement_only()).await?;
    for amount in ["5.00", "6.00"] {
        let payment = system.pay(amount).await?;
        system.wait_for_state(&payment.payment_id, "settled").await?;
    }
    assert_eq!(system.available().await?, OPENING_MINOR - 1_100);
    assert_eq!(system.audit().await?.debited, 2);
    Ok(())
}

#[tokio::test]
async fn s0_16_a_statement_settles_a_payment_that_needs_an_operator() -> anyhow::Result<()> {
    let system = System::start("statement-late", statement_only().with_profile("sla_ms", 500)).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    // The statement lists final transfers only, so a missing line does not decide.
    system.wait_for_state(&payment.payment_id, "needs_operator").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "held while the payment needs an operator");
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
