//! UPI: the file of the settlement cycle decides what three questions did not.

use serde_json::json;
use testkit::System;
use testkit::system::OPENING_MINOR;

use crate::kinds::upi;

#[tokio::test]
async fn s0_16_a_transfer_in_the_settlement_file_is_debited_after_the_questions_are_spent()
-> anyhow::Result<()> {
    // The file decides before the retention has expired, as on the rail.
    let system = System::start("in-the-file", upi().with_profile("retention_s", 600)).await?;
    let behaviour = json!({"outcome": "hold", "callback": {"lose": true}});
    system.switch.set_default_behaviour(behaviour).await?;
    let payment = system.pay("5.00").await?;
    let spent = || async {
        let transfer = system.transfer_name(&payment.payment_id).await?;
        let queries = system.switch.request_count(&transfer, "query").await?;
        Ok((queries >= 3).then_some(()))
    };
    testkit::wait::until("the queries are spent", std::time::Duration::from_secs(30), spent).await?;
    let transfer = system.transfer_name(&payment.payment_id).await?;
    system.switch.finish_transfer(&transfer, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.switch.request_count(&transfer, "query").await?, 3);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_9_a_transfer_that_is_absent_from_the_closed_file_is_released() -> anyhow::Result<()> {
    let system = System::start("not-in-the-file", upi()).await?;
    system.switch.set_default_behaviour(json!({"submit": [{"fault": "drop_request", "times": 40}]})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "timed_out").await?;
    let timeline = system.timeline(&payment.payment_id).await?;
    assert!(timeline.iter().any(|line| line.contains("statement that is complete")), "{timeline:?}");
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}
