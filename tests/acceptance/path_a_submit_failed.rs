//! Path A: the submit fails. The bank cancels at the switch, and the switch's answer decides (S0.8).

use serde_json::json;
use testkit::system::OPENING_MINOR;
use testkit::{System, SystemOptions};

#[tokio::test]
async fn s0_8_path_a_at_a_switch_that_is_asked_patiently() -> anyhow::Result<()> {
    let mut system = System::start("path-a-patient", SystemOptions::default().with_long_attempts()).await?;
    s0_8_after_a_refused_submit_the_release_awaits_the_cancel_answer(&mut system).await?;
    s0_8_a_transfer_with_a_lost_answer_is_found_by_query(&mut system).await?;
    Ok(())
}

async fn s0_8_after_a_refused_submit_the_release_awaits_the_cancel_answer(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    system
        .switch
        .set_default_behaviour(json!({"submit": ["refuse"], "reject_reason": "account_closed"}))
        .await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.payment(&payment.payment_id).await?["reason"], "submit_refused");
    assert_eq!(system.switch.request_count(&payment.reference, "cancel").await?, 1);
    system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn s0_8_s0_14_path_a_at_a_switch_without_an_answer() -> anyhow::Result<()> {
    let mut system = System::start("path-a", SystemOptions::default()).await?;
    s0_8_a_submit_that_never_arrives_leaves_a_tombstone(&mut system).await?;
    s0_8_a_rejected_status_decides_beside_an_undecided_cancel(&mut system).await?;
    s0_14_a_cancel_without_an_answer_is_repeated_and_alerted(&mut system).await?;
    Ok(())
}

async fn s0_8_a_submit_that_never_arrives_leaves_a_tombstone(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system
        .switch
        .set_default_behaviour(json!({"submit": [{"fault": "drop_request", "times": "always"}]}))
        .await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert_eq!(system.payment(&payment.payment_id).await?["reason"], "submit_unknown");
    assert_eq!(system.switch.transfer_status(&payment.reference).await?.as_deref(), Some("CANCELLED"));
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

async fn s0_8_a_transfer_with_a_lost_answer_is_found_by_query(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system
        .switch
        .set_default_behaviour(json!({"submit": ["accept_drop_answer"], "settle_after_ms": 600}))
        .await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(
        system.switch.request_count(&payment.reference, "submit").await?,
        1,
        "found by query, not resubmitted"
    );
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_11_strategy_reference_resubmits_and_the_switch_deduplicates() -> anyhow::Result<()> {
    let options = SystemOptions::default()
        .with_long_attempts()
        .with_profile("strategy", "reference")
        .with_profile("has_query", false);
    let system = System::start("path-a-reference", options).await?;
    system.switch.set_default_behaviour(json!({"submit": ["accept_drop_answer"], "outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 2);
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_8_not_found_does_not_release_before_the_deadline() -> anyhow::Result<()> {
    let options = SystemOptions::default()
        .with_profile("tombstones", false)
        // Long after the first cancel attempt, even on a slow machine.
        .with_profile("submit_deadline_ms", 15_000)
        .with_profile("submit_budget_ms", 6_500);
    let system = System::start("path-a-deadline", options).await?;
    system.switch.set_shape(json!({"tombstone": false})).await?;
    system
        .switch
        .set_default_behaviour(json!({"submit": [{"fault": "drop_request", "times": "always"}]}))
        .await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    // The deadline is on the switch's clock, which is this machine's.
    let is_after_deadline: bool =
        sqlx::query_scalar("SELECT ended_at > submit_deadline FROM payments WHERE payment_id = $1")
            .bind(&payment.payment_id)
            .fetch_one(&system.database.pool)
            .await?;
    assert!(is_after_deadline, "the payment was released before the submit deadline");
    assert!(
        system.switch.request_count(&payment.reference, "cancel").await? >= 2,
        "the cancel was not repeated"
    );
    system.audit().await?;
    Ok(())
}

/// A switch that repeats "in process" under cancel's constant key for ever: the rejection that its query reports decides.
async fn s0_8_a_rejected_status_decides_beside_an_undecided_cancel(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    system
        .switch
        .set_default_behaviour(json!({
            "submit": ["refuse"],
            "cancel": [{"fault": "in_process", "times": "always"}],
        }))
        .await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

async fn s0_14_a_cancel_without_an_answer_is_repeated_and_alerted(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system
        .switch
        .set_default_behaviour(json!({
            "submit": ["refuse"],
            "cancel": ["unauthorized", "error_500", "drop_request", "apply_drop_answer"],
        }))
        .await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert!(system.switch.request_count(&payment.reference, "cancel").await? >= 5);
    let alerts: Vec<String> = sqlx::query_scalar("SELECT kind FROM alerts WHERE payment_id = $1")
        .bind(&payment.payment_id)
        .fetch_all(&system.database.pool)
        .await?;
    assert_eq!(alerts, ["cancel_undecided"]);
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}
