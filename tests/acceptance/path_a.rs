//! Path A: submit fails. The switch is asked to cancel, and its answer is obeyed (S0.8).

use serde_json::json;
use testkit::system::OPENING_MINOR;
use testkit::{Options, System};

#[tokio::test]
async fn s0_8_a_refused_submit_releases_by_the_switchs_own_answer() -> anyhow::Result<()> {
    let system = System::start("path-a-refused", Options::default().unhurried()).await?;
    system.switch.behave(json!({"submit": ["refuse"], "reject_reason": "account_closed"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.payment(&payment.payment_id).await?["reason"], "submit_refused");
    assert_eq!(system.switch.requests(&payment.reference, "cancel").await?, 1);
    system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn s0_8_a_submit_that_never_arrives_leaves_a_tombstone() -> anyhow::Result<()> {
    let system = System::start("path-a-lost", Options::default()).await?;
    system.switch.behave(json!({"submit": [{"fault": "drop_request", "times": "always"}]})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert_eq!(system.payment(&payment.payment_id).await?["reason"], "submit_unknown");
    assert_eq!(system.switch.status(&payment.reference).await?.as_deref(), Some("CANCELLED"));
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn s0_8_an_answer_that_is_lost_is_found_by_the_next_look() -> anyhow::Result<()> {
    let system = System::start("path-a-answer-lost", Options::default().unhurried()).await?;
    system.switch.behave(json!({"submit": ["accept_drop_answer"], "settle_after_ms": 600})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.switch.requests(&payment.reference, "submit").await?, 1, "check-and-skip");
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_11_strategy_reference_sends_again_and_the_switch_deduplicates() -> anyhow::Result<()> {
    let options = Options::default().unhurried().profile("strategy", "reference").profile("has_query", false);
    let system = System::start("path-a-reference", options).await?;
    system.switch.behave(json!({"submit": ["accept_drop_answer"], "outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    assert_eq!(system.switch.requests(&payment.reference, "submit").await?, 2);
    system.switch.decide(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_8_nothing_found_is_not_believed_before_the_deadline() -> anyhow::Result<()> {
    let options = Options::default()
        .profile("tombstones", false)
        // Long after the first asking, however late that is.
        .profile("submit_deadline_ms", 15_000)
        .profile("submit_budget_ms", 6_500);
    let system = System::start("path-a-deadline", options).await?;
    system.switch.shape(json!({"tombstone": false})).await?;
    system.switch.behave(json!({"submit": [{"fault": "drop_request", "times": "always"}]})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    // The release came after the deadline on the switch's clock, which is this machine's.
    let late: bool =
        sqlx::query_scalar("SELECT ended_at > submit_deadline FROM payments WHERE payment_id = $1")
            .bind(&payment.payment_id)
            .fetch_one(&system.database.pool)
            .await?;
    assert!(late);
    assert!(system.switch.requests(&payment.reference, "cancel").await? >= 2, "asked again");
    system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn s0_14_a_cancel_without_an_answer_is_asked_again_and_alerted() -> anyhow::Result<()> {
    let system = System::start("path-a-no-answer", Options::default()).await?;
    system
        .switch
        .behave(json!({
            "submit": ["refuse"],
            "cancel": ["unauthorized", "error_500", "drop_request", "in_process", "apply_drop_answer"],
        }))
        .await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert!(system.switch.requests(&payment.reference, "cancel").await? >= 6);
    let alerts: Vec<String> = sqlx::query_scalar("SELECT kind FROM alerts WHERE payment_id = $1")
        .bind(&payment.payment_id)
        .fetch_all(&system.database.pool)
        .await?;
    assert_eq!(alerts, ["cancel_undecided"]);
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}
