//! Strategy D, at most one attempt: whatever becomes of it, the switch sees one submit, and what comes in
//! decides (S0.11, S1.1, S1.8).

use serde_json::{Value, json};
use testkit::System;
use testkit::system::OPENING_MINOR;

use crate::shapes::at_most_once;

/// For the payments that a callback is to end, and not the time that has passed.
const LONG_MS: u64 = 20_000;
/// For the others, which wait for it.
const SHORT_MS: u64 = 2_000;

/// Pays once while the switch behaves so, and ends as expected after exactly one submit.
async fn ends(name: &str, sla_ms: u64, behaviour: Value, end: &str) -> anyhow::Result<()> {
    let charged = end == "settled";
    let system = System::start(name, at_most_once().with_profile("sla_ms", sla_ms)).await?;
    system.switch.set_default_behaviour(behaviour).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, end).await?;
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 1, "{name}");
    assert_eq!(system.available().await?, OPENING_MINOR - if charged { 500 } else { 0 }, "{name}");
    assert_eq!(system.audit().await?.debited, usize::from(charged), "{name}");
    Ok(())
}

#[tokio::test]
async fn s0_11_a_lost_answer_and_a_success_callback_settle() -> anyhow::Result<()> {
    ends("one-success", LONG_MS, json!({"submit": ["accept_drop_answer"]}), "settled").await
}

#[tokio::test]
async fn s0_11_a_lost_answer_and_a_failure_callback_lead_to_a_cancel() -> anyhow::Result<()> {
    let behaviour = json!({"submit": ["accept_drop_answer"], "outcome": "reject"});
    ends("one-failure", LONG_MS, behaviour, "failed").await
}

#[tokio::test]
async fn s0_11_after_a_lost_answer_without_callback_our_cancel_decides() -> anyhow::Result<()> {
    let behaviour = json!({"submit": ["accept_drop_answer"], "callback": {"lose": true}});
    ends("one-silence", SHORT_MS, behaviour, "settled").await
}

#[tokio::test]
async fn s0_11_an_attempt_that_never_arrived_is_not_repeated() -> anyhow::Result<()> {
    ends("one-lost", SHORT_MS, json!({"submit": ["drop_request"]}), "timed_out").await
}

#[tokio::test]
async fn s0_11_an_attempt_answered_with_503_is_not_repeated() -> anyhow::Result<()> {
    ends("one-503", SHORT_MS, json!({"submit": ["error_503"]}), "timed_out").await
}
