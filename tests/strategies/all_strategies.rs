//! Each strategy debits once, also if the worker is killed after the switch accepted and before its answer arrived (S0.11,
//! S0.17, S2.1).

use serde_json::json;
use testkit::System;
use testkit::system::OPENING_MINOR;

use crate::switch_kinds::{strategies, transfer_count};

/// How long the switch keeps back its answer, in milliseconds: until the worker is killed.
const ACCEPT_HANG_MS: u64 = 4_500;

#[tokio::test]
async fn s0_11_s0_17_each_submit_strategy_debits_once() -> anyhow::Result<()> {
    for (name, options) in strategies() {
        let options = options
            .with_profile("attempt_timeout_ms", ACCEPT_HANG_MS + 500)
            .with_profile("submit_budget_ms", 25_000);
        let mut system = System::start(&format!("strategy-{name}"), options).await?;
        s0_11_each_submit_strategy_submits_and_debits_once(&system, name).await?;
        system.next_case().await?;
        s0_17_each_strategy_debits_once_after_a_worker_crash_at_acceptance(&mut system, name).await?;
    }
    Ok(())
}

async fn s0_11_each_submit_strategy_submits_and_debits_once(
    system: &System,
    name: &str,
) -> anyhow::Result<()> {
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "{name}");
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 1, "{name}");
    assert_eq!(system.switch.request_count(&payment.reference, "cancel").await?, 0, "{name}");
    assert_eq!(system.audit().await?.debited, 1, "{name}");
    Ok(())
}

async fn s0_17_each_strategy_debits_once_after_a_worker_crash_at_acceptance(
    system: &mut System,
    name: &str,
) -> anyhow::Result<()> {
    let accepted_late = json!({"outcome": "hold", "submit": [{"accept_hang_ms": ACCEPT_HANG_MS}]});
    system.switch.set_default_behaviour(accepted_late).await?;
    let payment = system.pay("5.00").await?;
    system.kill_worker_before_the_answer(&payment).await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.worker.restart().await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "{name}");
    assert_eq!(transfer_count(system, &payment.reference).await?, 1, "{name}");
    // Only a switch that deduplicates receives a second submit.
    let submits_max = if name == "reference" { 2 } else { 1 };
    assert!(system.switch.request_count(&payment.reference, "submit").await? <= submits_max, "{name}");
    assert_eq!(system.audit().await?.debited, 1, "{name}");
    Ok(())
}
