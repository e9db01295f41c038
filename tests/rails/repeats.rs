//! RTP and Pix: the only question is the recorded submit again.

use serde_json::json;
use testkit::System;
use testkit::system::OPENING_MINOR;

use crate::kinds::{pix, rtp};

#[tokio::test]
async fn s0_4_a_repeat_of_the_submit_learns_the_first_outcome_and_pays_once() -> anyhow::Result<()> {
    for (name, options) in [("rtp", rtp()), ("pix", pix())] {
        let system = System::start(&format!("repeated-{name}"), options).await?;
        system.switch.set_default_behaviour(json!({"callback": {"lose": true}})).await?;
        let payment = system.pay("5.00").await?;
        system.wait_for_state(&payment.payment_id, "settled").await?;
        let transfer = system.transfer_name(&payment.payment_id).await?;
        assert_eq!(system.switch.request_count(&transfer, "query").await?, 0, "{name}");
        assert_eq!(system.switch.request_count(&transfer, "submit").await?, 2, "{name}");
        assert_eq!(system.switch.transfers().await?.len(), 1, "{name}: the repeat is no second transfer");
        assert_eq!(system.audit().await?.debited, 1, "{name}");
    }
    Ok(())
}

/// The switch never received the submit, and executes its repeat: an answer like any other.
#[tokio::test]
async fn s0_4_a_repeat_that_the_switch_executes_for_the_first_time_settles_and_is_debited()
-> anyhow::Result<()> {
    let system = System::start("executed-repeat", rtp()).await?;
    // More than fit into submit's budget.
    let dropped = json!([{"fault": "drop_request", "times": 40}]);
    system.switch.set_default_behaviour(json!({"submit": dropped})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "cancelling").await?;
    assert_eq!(system.switch.transfers().await?.len(), 0);
    system.switch.set_default_behaviour(json!({})).await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.switch.transfers().await?.len(), 1);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

/// Pix refuses a repeat after its time, under a code that means dead.
#[tokio::test]
async fn s0_9_a_repeat_after_the_deadline_is_refused_for_good_and_the_hold_released() -> anyhow::Result<()> {
    let system = System::start("late-repeat", pix()).await?;
    let dropped = json!([{"fault": "drop_request", "times": 40}]);
    system.switch.set_default_behaviour(json!({"submit": dropped})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "cancelling").await?;
    // Submit's budget is longer than its deadline: what comes now is late.
    system.switch.set_default_behaviour(json!({})).await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}
