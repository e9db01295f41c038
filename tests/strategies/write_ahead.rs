//! Strategy write_ahead: the submission log replaces the query before the first attempt, and a retry resolves a pending entry
//! of the log (S0.11).

use serde_json::json;
use testkit::System;

use crate::switch_kinds::{transfer_count, write_ahead};

#[tokio::test]
async fn s0_11_write_ahead_resolves_a_pending_submission_by_query() -> anyhow::Result<()> {
    let system = System::start("write-ahead-query", write_ahead()).await?;
    system.switch.set_default_behaviour(json!({"submit": ["accept_drop_answer"]})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(
        system.switch.request_count(&payment.reference, "submit").await?,
        1,
        "found by query, not resubmitted"
    );
    assert_eq!(system.switch.request_count(&payment.reference, "cancel").await?, 0);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_11_write_ahead_resolves_a_pending_submission_by_deduplication() -> anyhow::Result<()> {
    let mut options = write_ahead().with_profile("deduplicates", true).with_profile("has_query", false);
    options.shape = json!({"query": false});
    let system = System::start("write-ahead-dedup", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold", "submit": ["accept_drop_answer"]})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    assert_eq!(
        system.switch.request_count(&payment.reference, "submit").await?,
        2,
        "expected one resubmission"
    );
    assert_eq!(transfer_count(&system, &payment.reference).await?, 1, "the switch did not deduplicate");
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_11_write_ahead_sends_no_query_before_the_first_submit() -> anyhow::Result<()> {
    // The query that confirms the callback is not the subject.
    let options = write_ahead().with_profile("confirm_by_query", "never");
    let system = System::start("write-ahead-first", options).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.switch.request_count(&payment.reference, "query").await?, 0);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
