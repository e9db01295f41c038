//! Strategy at_most_once: the switch receives one submit whatever its outcome is, and the callback or our cancel decides
//! (S0.11, S1.1, S1.8).

use serde_json::{Value, json};
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use testkit::System;
use testkit::system::OPENING_MINOR;

use crate::switch_kinds::{at_most_once, transfer_count, validate};

/// SLA for payments that a callback ends.
const LONG_SLA_MS: u64 = 20_000;
/// SLA for payments that wait until it expires.
const SHORT_SLA_MS: u64 = 2_000;

/// Submit budget in which the held-back tries of a test end on any machine.
const LONG_BUDGET_MS: u64 = 120_000;

/// Pays at a switch with this behaviour; expects the final state after exactly one submit.
async fn assert_end(system: &mut System, behaviour: Value, end: &str) -> anyhow::Result<()> {
    let is_debited = end == "settled";
    system.next_case().await?;
    system.switch.set_default_behaviour(behaviour.clone()).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, end).await?;
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 1, "{behaviour}");
    assert_eq!(system.available().await?, OPENING_MINOR - if is_debited { 500 } else { 0 }, "{behaviour}");
    assert_eq!(system.audit().await?.debited, usize::from(is_debited), "{behaviour}");
    Ok(())
}

#[tokio::test]
async fn s0_11_at_most_once_follows_the_callback_after_a_lost_submit_answer() -> anyhow::Result<()> {
    let mut system =
        System::start("one-callback", at_most_once().with_profile("sla_ms", LONG_SLA_MS)).await?;
    assert_end(&mut system, json!({"submit": ["accept_drop_answer"]}), "settled").await?;
    assert_end(&mut system, json!({"submit": ["accept_drop_answer"], "outcome": "reject"}), "failed").await
}

/// Neither an answer nor a callback: our cancel decides, and no submit is repeated.
#[tokio::test]
async fn s0_11_at_most_once_without_an_outcome_our_cancel_decides() -> anyhow::Result<()> {
    let mut system =
        System::start("one-silence", at_most_once().with_profile("sla_ms", SHORT_SLA_MS)).await?;
    let executed = json!({"submit": ["accept_drop_answer"], "callback": {"lose": true}});
    assert_end(&mut system, executed, "settled").await?;
    assert_end(&mut system, json!({"submit": ["drop_request"]}), "timed_out").await?;
    assert_end(&mut system, json!({"submit": ["error_503"]}), "timed_out").await
}

/// A try that is held back sends nothing, so it is not the one attempt. Temporal counts it all the same: without the heartbeat
/// that says so, the next try would be forbidden.
#[tokio::test]
async fn s1_1_at_most_once_submits_once_after_tries_that_are_held_back() -> anyhow::Result<()> {
    // A try must outlast the lock timeout of the database: one that is cut off says nothing.
    let options = at_most_once()
        .with_profile("attempt_timeout_ms", 5_000)
        .with_profile("submit_budget_ms", LONG_BUDGET_MS);
    let mut system = System::start("one-held-back", options).await?;
    // No answer of this switch was ever read, so the worker does not know its clock.
    system.mock_switch.kill().await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_attempt(&payment.payment_id, "submit", 3).await?;
    // Nor can the next tries read the payment: the lock timeout ends them.
    let mut lock = system.database.pool.begin().await?;
    sqlx::query("LOCK TABLE payments IN ACCESS EXCLUSIVE MODE").execute(&mut *lock).await?;
    system.wait_for_attempt(&payment.payment_id, "submit", 6).await?;
    lock.rollback().await?;
    system.mock_switch.restart().await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 1);
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

/// As above, at a switch without references: its listing is unreadable at first, and once asks for a pause.
#[tokio::test]
async fn s1_1_validate_submits_once_after_tries_without_a_listing() -> anyhow::Result<()> {
    let options = validate().with_profile("submit_budget_ms", LONG_BUDGET_MS);
    let system = System::start("one-no-listing", options).await?;
    let listing = json!(["error_500", "error_503", {"fault": "error_500", "times": 2}]);
    system.switch.set_default_behaviour(json!({"listing": listing})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    let history = system.history(&payment.payment_id).await?;
    let tries = history.into_iter().find_map(|event| match event.attributes {
        Some(Attributes::ActivityTaskStartedEventAttributes(started)) => Some(started.attempt),
        _ => None,
    });
    assert!(tries.is_some_and(|tries| tries > 4), "the listing was read at the first of {tries:?} tries");
    assert_eq!(transfer_count(&system, &payment.reference).await?, 1);
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
