//! Decisions by people, end to end: proposed, confirmed by another, told to the workflow as an Update,
//! refused where the switch says otherwise, and carried out once whatever dies on the way.

use std::time::Duration;

use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::facts::FinalStatus;
use serde_json::{Value, json};
use temporalio_client::WorkflowTerminateOptions;
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::wait::until;
use testkit::{System, SystemOptions};

use crate::people::{decide, outcome, told};
use crate::shapes::{forgetful, reference};

/// A switch that only calls back, and loses its callbacks: when none comes, a person must decide.
fn mute() -> SystemOptions {
    let mut options = reference().with_profile("can_cancel", false).with_profile("sla_ms", 500);
    options.shape = json!({"query": false, "cancel": false});
    options
}

/// The switch says that it knows nothing of a payment, until it is told otherwise.
fn silent(outcome: &str) -> Value {
    json!({
        "outcome": outcome,
        "callback": {"lose": true},
        "query": [{"fault": "not_found", "times": "always"}],
    })
}

/// A payment of 5.00 that stands before a person.
async fn standing(system: &System, behaviour: Value) -> anyhow::Result<AcceptedPayment> {
    system.switch.set_default_behaviour(behaviour).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "needs_operator").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "held while it stands");
    Ok(payment)
}

#[tokio::test]
async fn s0_10_two_operators_debit_without_an_answer_of_the_switch() -> anyhow::Result<()> {
    let system = System::start("decided-settle", mute()).await?;
    let payment = standing(&system, json!({"callback": {"lose": true}})).await?;
    let seen = system.payment(&payment.payment_id).await?;
    assert_eq!(seen["operator_reason"], "no_cancel_or_query", "{seen}");
    assert_eq!(seen["allowed_actions"], json!(["settle", "release"]), "{seen}");
    assert!(seen["needs_operator_since"].is_string(), "{seen}");
    let decision = decide(&system, &payment.payment_id, Action::Debit).await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(outcome(&system, &decision).await?, DecisionOutcome::Settled);
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    told(&system).await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_10_two_operators_release_without_an_answer_of_the_switch() -> anyhow::Result<()> {
    let system = System::start("decided-release", mute()).await?;
    let payment = standing(&system, json!({"outcome": "reject", "callback": {"lose": true}})).await?;
    let decision = decide(&system, &payment.payment_id, Action::Release).await?;
    let came = outcome(&system, &decision).await?;
    assert!(matches!(came, DecisionOutcome::Released(_)), "{came:?}");
    let end = system.state(&payment.payment_id).await?;
    assert!(["failed", "timed_out"].contains(&end.as_str()), "{end}");
    assert_eq!(system.available().await?, OPENING_MINOR);
    told(&system).await?;
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}

#[tokio::test]
async fn s0_10_a_retried_cancel_follows_the_switchs_answer() -> anyhow::Result<()> {
    let system = System::start("decided-retry-cancel", forgetful()).await?;
    let payment = standing(&system, silent("settle")).await?;
    system.switch.set_default_behaviour(json!({})).await?;
    let decision = decide(&system, &payment.payment_id, Action::RetryCancel).await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(outcome(&system, &decision).await?, DecisionOutcome::RetryCancel);
    told(&system).await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_10_a_release_decision_is_refused_if_the_transfer_settled() -> anyhow::Result<()> {
    let system = System::start("decided-refused", forgetful()).await?;
    let payment = standing(&system, silent("settle")).await?;
    system.switch.set_default_behaviour(json!({})).await?;
    let decision = decide(&system, &payment.payment_id, Action::Release).await?;
    let came = outcome(&system, &decision).await?;
    assert!(matches!(&came, DecisionOutcome::Refused { detail } if detail.contains("settled")), "{came:?}");
    // What the switch said when it was asked is followed.
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s0_10_a_debit_decision_is_refused_if_the_transfer_is_void() -> anyhow::Result<()> {
    let system = System::start("decided-dead", forgetful()).await?;
    let payment = standing(&system, silent("reject")).await?;
    system.switch.set_default_behaviour(json!({})).await?;
    let decision = decide(&system, &payment.payment_id, Action::Debit).await?;
    let came = outcome(&system, &decision).await?;
    assert!(matches!(&came, DecisionOutcome::Refused { detail } if detail.contains("void")), "{came:?}");
    assert_eq!(system.state(&payment.payment_id).await?, "needs_operator");
    // The payment stands again and takes the next decision, which the switch confirms.
    let next = decide(&system, &payment.payment_id, Action::Release).await?;
    assert_eq!(outcome(&system, &next).await?, DecisionOutcome::Verdict(FinalStatus::Void));
    system.wait_for_state(&payment.payment_id, "timed_out").await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}

#[tokio::test]
async fn s2_1_a_worker_crash_while_applying_a_decision_debits_once() -> anyhow::Result<()> {
    let mut system = System::start("decided-dies", forgetful()).await?;
    let payment = standing(&system, silent("settle")).await?;
    let queries = system.switch.request_count(&payment.reference, "query").await?;
    // The decision's own look hangs, so the worker dies in the middle of it.
    let hangs = json!({"callback": {"lose": true}, "query": [{"delay_ms": 900}]});
    system.switch.set_default_behaviour(hangs).await?;
    let decision = decide(&system, &payment.payment_id, Action::Debit).await?;
    until("the switch is asked for the decision", Duration::from_secs(30), || async {
        Ok((system.switch.request_count(&payment.reference, "query").await? > queries).then_some(()))
    })
    .await?;
    system.worker.kill().await?;
    system.worker.restart().await?;
    let came = outcome(&system, &decision).await?;
    assert_eq!(came, DecisionOutcome::Verdict(FinalStatus::Settled), "the switch confirmed it");
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    told(&system).await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s2_1_a_decision_survives_the_termination_of_its_workflow() -> anyhow::Result<()> {
    let mut system = System::start("decided-terminated", mute()).await?;
    let payment = standing(&system, json!({"callback": {"lose": true}})).await?;
    system.worker.kill().await?;
    let decision = decide(&system, &payment.payment_id, Action::Debit).await?;
    let workflow = system.workflow(&payment.payment_id).await?;
    workflow.terminate(WorkflowTerminateOptions::default()).await?;
    // The run that follows stands before a person again, and is told by the relay.
    system.worker.restart().await?;
    assert_eq!(outcome(&system, &decision).await?, DecisionOutcome::Settled);
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    told(&system).await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
