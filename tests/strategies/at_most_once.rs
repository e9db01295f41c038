//! Strategy at_most_once: the switch receives one submit whatever its outcome is, and the callback or our cancel decides
//! (S0.11, S1.1, S1.8).

use serde_json::{Value, json};
use testkit::System;
use testkit::system::OPENING_MINOR;

use crate::switch_kinds::at_most_once;

/// SLA for payments that a callback ends.
const LONG_SLA_MS: u64 = 20_000;
/// SLA for payments that wait until it expires.
const SHORT_SLA_MS: u64 = 2_000;

/// Pays at a switch with this behaviour; expects the final state after exactly one submit.
async fn assert_end(name: &str, sla_ms: u64, behaviour: Value, end: &str) -> anyhow::Result<()> {
    let is_debited = end == "settled";
    let system = System::start(name, at_most_once().with_profile("sla_ms", sla_ms)).await?;
    system.switch.set_default_behaviour(behaviour).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, end).await?;
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 1, "{name}");
    assert_eq!(system.available().await?, OPENING_MINOR - if is_debited { 500 } else { 0 }, "{name}");
    assert_eq!(system.audit().await?.debited, usize::from(is_debited), "{name}");
    Ok(())
}

#[tokio::test]
async fn s0_11_at_most_once_settles_on_a_success_after_a_lost_submit_answer() -> anyhow::Result<()> {
    assert_end("one-success", LONG_SLA_MS, json!({"submit": ["accept_drop_answer"]}), "settled").await
}

#[tokio::test]
async fn s0_11_at_most_once_cancels_on_a_failure_after_a_lost_submit_answer() -> anyhow::Result<()> {
    let behaviour = json!({"submit": ["accept_drop_answer"], "outcome": "reject"});
    assert_end("one-failure", LONG_SLA_MS, behaviour, "failed").await
}

#[tokio::test]
async fn s0_11_at_most_once_without_answer_and_callback_our_cancel_decides() -> anyhow::Result<()> {
    let behaviour = json!({"submit": ["accept_drop_answer"], "callback": {"lose": true}});
    assert_end("one-silence", SHORT_SLA_MS, behaviour, "settled").await
}

#[tokio::test]
async fn s0_11_at_most_once_does_not_repeat_a_submit_that_never_arrived() -> anyhow::Result<()> {
    assert_end("one-lost", SHORT_SLA_MS, json!({"submit": ["drop_request"]}), "timed_out").await
}

#[tokio::test]
async fn s0_11_at_most_once_does_not_repeat_a_submit_answered_with_503() -> anyhow::Result<()> {
    assert_end("one-503", SHORT_SLA_MS, json!({"submit": ["error_503"]}), "timed_out").await
}
