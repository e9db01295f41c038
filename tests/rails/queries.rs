//! Questions to a rail: not before their time, and no more than it answers.

use serde_json::json;
use testkit::system::OPENING_MINOR;
use testkit::{System, SystemOptions};

use crate::kinds::{fednow, sct_inst, upi};

/// A system whose switch loses its callbacks.
async fn start_without_callbacks(name: &str, options: SystemOptions) -> anyhow::Result<System> {
    let system = System::start(name, options).await?;
    system.switch.set_default_behaviour(json!({"callback": {"lose": true}})).await?;
    Ok(system)
}

#[tokio::test]
async fn s0_5_a_lost_confirmation_is_asked_for_after_the_rails_own_time_and_settles() -> anyhow::Result<()> {
    for (name, options) in [("sct-inst", sct_inst()), ("fednow", fednow()), ("upi", upi())] {
        let system = start_without_callbacks(&format!("asked-{name}"), options).await?;
        let payment = system.pay("5.00").await?;
        system.wait_for_state(&payment.payment_id, "settled").await?;
        // One question: an earlier one would have been refused, and asked again.
        let transfer = system.transfer_name(&payment.payment_id).await?;
        assert_eq!(system.switch.request_count(&transfer, "query").await?, 1, "{name}");
        assert_eq!(system.audit().await?.debited, 1, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn s0_5_a_customers_cancel_is_not_asked_about_before_the_rails_own_time() -> anyhow::Result<()> {
    // The switch answers queries after a second; the bank waits for longer, so that a request on its way for seconds is in time.
    let options = fednow().with_profile("sla_ms", 20_000).with_profile("first_ask_after_ms", 5_000);
    let system = System::start("early-cancel", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold", "callback": {"lose": true}})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    system.cancel(&payment.payment_id).await?.error_for_status()?;
    // The switch's own clock ends the transfer; the first question comes after it and gets the reject.
    system.wait_for_state(&payment.payment_id, "cancelled").await?;
    let transfer = system.transfer_name(&payment.payment_id).await?;
    assert_eq!(system.switch.request_count(&transfer, "query").await?, 1);
    // The only answer ended the payment.
    let in_time = "SELECT ended_at >= first_attempt_at + interval '5 seconds' FROM payments";
    let in_time: bool = sqlx::query_scalar(in_time).fetch_one(&system.database.pool).await?;
    assert!(in_time, "the switch was queried before its time");
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn s0_5_the_fourth_question_is_never_asked() -> anyhow::Result<()> {
    // Three questions as at UPI, and a statement that never says that it is complete: an operator must decide.
    let mut options = sct_inst().with_profile("asks_max", 3);
    options.shape["decides_within_ms"] = 0.into();
    options.shape["queries_max"] = 3.into();
    let system = System::start("fourth-question", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "needs_operator").await?;
    let transfer = system.transfer_name(&payment.payment_id).await?;
    assert_eq!(system.switch.request_count(&transfer, "query").await?, 3);
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "held: the transfer may still settle");
    // The rail's own confirmation is followed still.
    system.switch.finish_transfer(&transfer, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.switch.request_count(&transfer, "query").await?, 3);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
