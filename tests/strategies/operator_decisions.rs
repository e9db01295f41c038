//! Operator decisions, end to end: proposed, confirmed by a second operator, delivered to the workflow as an Update, refused
//! if the switch contradicts them, and applied once whatever process is killed meanwhile.

use std::time::Duration;

use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::facts::FinalStatus;
use serde_json::{Value, json};
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::temporal::{EventType, HistoryEvent};
use testkit::wait::until;
use testkit::{System, SystemOptions};

use crate::operators::{decide, outcome, wait_until_inbox_empty};
use crate::switch_kinds::{no_proof_of_absence, reference};

/// A switch that offers callbacks only and loses them, so that an operator must decide.
fn callback_only() -> SystemOptions {
    let mut options = reference().with_profile("can_cancel", false).with_profile("sla_ms", 500);
    options.shape = json!({"query": false, "cancel": false});
    options
}

/// A switch whose late answer no poll finds, so that operators decide.
fn not_polled() -> SystemOptions {
    no_proof_of_absence().with_profile("confirm_by_query", "never")
}

/// Behaviour: the switch answers queries with `not_found` and sends no callback.
fn not_found(outcome: &str) -> Value {
    json!({
        "outcome": outcome,
        "callback": {"lose": true},
        "query": [{"fault": "not_found", "times": "always"}],
    })
}

/// A payment of 5.00 that needs an operator.
async fn undecided_payment(system: &System, behaviour: Value) -> anyhow::Result<AcceptedPayment> {
    system.switch.set_default_behaviour(behaviour).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "needs_operator").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "held while the payment needs an operator");
    Ok(payment)
}

#[tokio::test]
async fn s0_10_two_operators_decide_without_an_answer_of_the_switch() -> anyhow::Result<()> {
    let mut system = System::start("decided", callback_only()).await?;
    s0_10_two_operators_debit_without_an_answer_of_the_switch(&mut system).await?;
    s0_10_two_operators_release_without_an_answer_of_the_switch(&mut system).await?;
    Ok(())
}

async fn s0_10_two_operators_debit_without_an_answer_of_the_switch(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let payment = undecided_payment(system, json!({"callback": {"lose": true}})).await?;
    let shown = system.payment(&payment.payment_id).await?;
    let reason = system.operator_reason(&payment.payment_id).await?;
    assert_eq!(reason.as_deref(), Some("no_cancel_or_query"), "{shown}");
    assert!(shown["needs_operator_since"].is_string(), "{shown}");
    let decision = decide(system, &payment.payment_id, Action::Debit).await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(outcome(system, &decision).await?, DecisionOutcome::Settled);
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    wait_until_inbox_empty(system).await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn s0_10_two_operators_release_without_an_answer_of_the_switch(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let payment = undecided_payment(system, json!({"outcome": "reject", "callback": {"lose": true}})).await?;
    let decision = decide(system, &payment.payment_id, Action::Release).await?;
    let result = outcome(system, &decision).await?;
    assert!(matches!(result, DecisionOutcome::Released(_)), "{result:?}");
    let end = system.state(&payment.payment_id).await?;
    assert!(["failed", "timed_out"].contains(&end.as_str()), "{end}");
    assert_eq!(system.available().await?, OPENING_MINOR);
    wait_until_inbox_empty(system).await?;
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}

#[tokio::test]
async fn s0_10_decisions_follow_the_answers_of_the_switch() -> anyhow::Result<()> {
    let mut system = System::start("decided-by-the-switch", not_polled()).await?;
    s0_10_a_retried_cancel_follows_the_switchs_answer(&mut system).await?;
    s0_10_a_release_decision_is_refused_if_the_transfer_settled(&mut system).await?;
    s0_10_a_debit_decision_is_refused_if_the_transfer_is_void(&mut system).await?;
    Ok(())
}

async fn s0_10_a_retried_cancel_follows_the_switchs_answer(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    let payment = undecided_payment(system, not_found("settle")).await?;
    system.switch.set_default_behaviour(json!({})).await?;
    let decision = decide(system, &payment.payment_id, Action::RetryCancel).await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(outcome(system, &decision).await?, DecisionOutcome::RetryCancel);
    wait_until_inbox_empty(system).await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

/// A switch that can be queried at once is polled: the payment needs no decision once the switch answers.
#[tokio::test]
async fn s0_10_a_payment_that_awaits_an_operator_follows_the_switchs_late_answer() -> anyhow::Result<()> {
    let options = no_proof_of_absence().with_profile("confirm_by_query", "always");
    let system = System::start("polled-for-operators", options).await?;
    let payment = undecided_payment(&system, not_found("settle")).await?;
    system.switch.set_default_behaviour(json!({})).await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn s0_10_a_release_decision_is_refused_if_the_transfer_settled(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let payment = undecided_payment(system, not_found("settle")).await?;
    system.switch.set_default_behaviour(json!({})).await?;
    let decision = decide(system, &payment.payment_id, Action::Release).await?;
    let result = outcome(system, &decision).await?;
    assert!(
        matches!(&result, DecisionOutcome::Refused { detail } if detail.contains("settled")),
        "{result:?}"
    );
    // The answer that refused the decision is the final status, so the payment is debited.
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn s0_10_a_debit_decision_is_refused_if_the_transfer_is_void(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let payment = undecided_payment(system, not_found("reject")).await?;
    system.switch.set_default_behaviour(json!({})).await?;
    let decision = decide(system, &payment.payment_id, Action::Debit).await?;
    let result = outcome(system, &decision).await?;
    assert!(matches!(&result, DecisionOutcome::Refused { detail } if detail.contains("void")), "{result:?}");
    assert_eq!(system.state(&payment.payment_id).await?, "needs_operator");
    // The payment accepts the next decision, which the switch confirms.
    let next = decide(system, &payment.payment_id, Action::Release).await?;
    assert_eq!(outcome(system, &next).await?, DecisionOutcome::FinalStatus(FinalStatus::Void));
    system.wait_for_state(&payment.payment_id, "timed_out").await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}

/// The database loses the close of a refused decision. The workflow answers its repeated delivery, and bars no other decision.
#[tokio::test]
async fn s0_10_a_refused_decision_whose_close_is_lost_bars_no_other() -> anyhow::Result<()> {
    let system = System::start("lost-close", not_polled()).await?;
    let payment = undecided_payment(&system, not_found("reject")).await?;
    system.switch.set_default_behaviour(json!({})).await?;
    let decision = decide(&system, &payment.payment_id, Action::Debit).await?;
    assert!(matches!(outcome(&system, &decision).await?, DecisionOutcome::Refused { .. }));
    wait_until_inbox_empty(&system).await?;
    sqlx::raw_sql(
        "BEGIN; SET LOCAL session_replication_role = replica;
         UPDATE decisions SET status = 'confirmed', outcome = NULL, detail = NULL, closed_at = NULL;
         UPDATE inbox SET delivered_at = NULL, next_delivery_at = now() WHERE kind = 'decision'; COMMIT",
    )
    .execute(&system.database.pool)
    .await?;
    assert!(matches!(outcome(&system, &decision).await?, DecisionOutcome::Refused { .. }));
    let next = decide(&system, &payment.payment_id, Action::Release).await?;
    assert_eq!(outcome(&system, &next).await?, DecisionOutcome::FinalStatus(FinalStatus::Void));
    system.wait_for_state(&payment.payment_id, "timed_out").await?;
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}

#[tokio::test]
async fn s2_1_a_worker_crash_while_applying_a_decision_debits_once() -> anyhow::Result<()> {
    let options =
        not_polled().with_profile("attempt_timeout_ms", 5_000).with_profile("submit_budget_ms", 25_000);
    let mut system = System::start("decided-dies", options).await?;
    let payment = undecided_payment(&system, not_found("settle")).await?;
    let queries = system.switch.request_count(&payment.reference, "query").await?;
    // The query before applying the decision hangs, so the worker is killed meanwhile.
    let slow_query = json!({"callback": {"lose": true}, "query": [{"delay_ms": 4_500}]});
    system.switch.set_default_behaviour(slow_query).await?;
    let decision = decide(&system, &payment.payment_id, Action::Debit).await?;
    until("the switch receives a query for the decision", Duration::from_secs(30), || async {
        Ok((system.switch.request_count(&payment.reference, "query").await? > queries).then_some(()))
    })
    .await?;
    system.worker.kill().await?;
    system.worker.restart().await?;
    let result = outcome(&system, &decision).await?;
    assert_eq!(result, DecisionOutcome::FinalStatus(FinalStatus::Settled));
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    wait_until_inbox_empty(&system).await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn s2_1_a_decision_survives_the_termination_of_its_workflow() -> anyhow::Result<()> {
    let mut system = System::start("decided-terminated", callback_only()).await?;
    let payment = undecided_payment(&system, json!({"callback": {"lose": true}})).await?;
    system.worker.kill().await?;
    let decision = decide(&system, &payment.payment_id, Action::Debit).await?;
    system.terminate_workflow(&payment.payment_id).await?;
    // The recovery workflow needs an operator again, and the background worker delivers the decision to it.
    system.worker.restart().await?;
    assert_eq!(outcome(&system, &decision).await?, DecisionOutcome::Settled);
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    wait_until_inbox_empty(&system).await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

/// The alerts of a payment, each with its detail, sorted.
async fn alerts(system: &System, payment_id: &str) -> anyhow::Result<Vec<(String, String)>> {
    let alerts = "SELECT kind, detail FROM alerts WHERE payment_id = $1 ORDER BY kind";
    Ok(sqlx::query_as(alerts).bind(payment_id).fetch_all(&system.database.pool).await?)
}

#[tokio::test]
async fn r6_a_debit_that_the_database_refuses_needs_an_operator() -> anyhow::Result<()> {
    let system = System::start("debit-refused-for-good", SystemOptions::default()).await?;
    let constraint = "ALTER TABLE journal ADD CONSTRAINT no_debit CHECK (kind <> 'debit')";
    sqlx::raw_sql(constraint).execute(&system.database.pool).await?;
    let payment = system.pay("5.00").await?;
    let id = payment.payment_id.as_str();
    system.wait_for_state(id, "needs_operator").await?;
    assert_eq!(system.operator_reason(id).await?.as_deref(), Some("debit_failed"));
    let raised = until("both alerts are raised", Duration::from_secs(30), || async {
        let raised = alerts(&system, id).await?;
        Ok((raised.len() == 2).then_some(raised))
    })
    .await?;
    let [(first, detail), (second, _)] = raised.as_slice() else { anyhow::bail!("{raised:?}") };
    assert_eq!((first.as_str(), second.as_str()), ("debit_failed", "needs_operator"));
    assert!(detail.contains("no_debit"), "the alert does not name the cause: {detail}");
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "held while the payment needs an operator");
    assert_eq!(system.audit().await?.open, 1);

    // The decision meets the same refusal: it is closed with the cause, and operators may decide again.
    let decision = decide(&system, id, Action::Debit).await?;
    let DecisionOutcome::Refused { detail: refusal } = outcome(&system, &decision).await? else {
        anyhow::bail!("the decision was applied");
    };
    assert!(refusal.contains("no_debit"), "the refusal does not name the cause: {refusal}");
    assert_eq!(system.state(id).await?, "needs_operator");

    // The database accepts the debit again, and an operator has it repeated.
    sqlx::raw_sql("ALTER TABLE journal DROP CONSTRAINT no_debit").execute(&system.database.pool).await?;
    decide(&system, id, Action::RetryCancel).await?;
    system.wait_for_state(id, "settled").await?;
    wait_until_inbox_empty(&system).await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

/// The database refuses even the state that calls an operator: the alert names the cause.
#[tokio::test]
async fn r6_a_refused_call_of_an_operator_raises_its_alert() -> anyhow::Result<()> {
    let system = System::start("operator-refused-for-good", SystemOptions::default()).await?;
    let pool = &system.database.pool;
    sqlx::raw_sql(
        "ALTER TABLE journal ADD CONSTRAINT no_debit CHECK (kind <> 'debit');
         ALTER TABLE payments ADD CONSTRAINT no_operator CHECK (state <> 'needs_operator')",
    )
    .execute(pool)
    .await?;
    let payment = system.pay("5.00").await?;
    let id = payment.payment_id.as_str();
    let detail = until("the alert is raised", Duration::from_secs(60), || async {
        let raised = alerts(&system, id).await?;
        Ok(raised.into_iter().find(|(kind, _)| kind == "needs_operator").map(|(_, detail)| detail))
    })
    .await?;
    assert!(detail.contains("no_operator"), "the alert does not name the cause: {detail}");
    sqlx::raw_sql("ALTER TABLE payments DROP CONSTRAINT no_operator").execute(pool).await?;
    system.wait_for_state(id, "needs_operator").await?;
    assert_eq!(system.audit().await?.open, 1);
    Ok(())
}

/// The reserve and its fence are refused for good, and the workflow is lost: the recovery workflow requests an operator at its
/// first step, and sends nothing.
#[tokio::test]
async fn r6_a_fence_that_the_database_refuses_needs_an_operator() -> anyhow::Result<()> {
    let system = System::start("fence-refused-for-good", SystemOptions::default()).await?;
    let pool = &system.database.pool;
    sqlx::raw_sql(
        "ALTER TABLE journal ADD CONSTRAINT no_reserve CHECK (kind <> 'reserve');
         ALTER TABLE operations ADD CONSTRAINT no_fence CHECK (reason <> 'fenced')",
    )
    .execute(pool)
    .await?;
    let payment = system.pay("5.00").await?;
    let id = payment.payment_id.as_str();
    system.wait_for_state(id, "needs_operator").await?;
    // An alert is raised once for each payment; those of the recovery workflow are the subject.
    until("the release has raised its alert", Duration::from_secs(30), || async {
        let deleted = "DELETE FROM alerts WHERE payment_id = $1 AND kind = 'compensation_failed'";
        Ok((sqlx::query(deleted).bind(id).execute(pool).await?.rows_affected() == 1).then_some(()))
    })
    .await?;
    system.terminate_workflow(id).await?;
    let detail = until("the recovery workflow raises its alert", Duration::from_secs(60), || async {
        let raised = alerts(&system, id).await?;
        Ok(raised.into_iter().find(|(kind, _)| kind == "compensation_failed").map(|(_, detail)| detail))
    })
    .await?;
    assert!(detail.contains("no_fence"), "the alert does not name the cause: {detail}");
    let steps = system.history(&format!("{id}:resume:1")).await?;
    let is_ordinary = |event: &&HistoryEvent| event.event_type() == EventType::ActivityTaskScheduled;
    assert_eq!(steps.iter().filter(is_ordinary).count(), 0, "expected neither a retry nor a cancel");
    assert_eq!(system.state(id).await?, "needs_operator");

    sqlx::raw_sql("ALTER TABLE operations DROP CONSTRAINT no_fence").execute(pool).await?;
    decide(&system, id, Action::RetryCancel).await?;
    system.wait_for_state(id, "failed").await?;
    wait_until_inbox_empty(&system).await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}

/// The switch of an open payment is no longer configured: the cancel gets no answer, and once the switch's retention has passed, two operators end
/// the payment with what the switch's operator says.
#[tokio::test]
async fn s0_10_a_payment_whose_switch_is_no_longer_configured_is_decided_by_operators() -> anyhow::Result<()>
{
    let options = SystemOptions::default().with_profile("sla_ms", 600_000).with_other_switch(&[]);
    let mut system = System::start("forgotten-switch", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay_to("YY-BOB", "5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    system.worker.stop().await?;
    system.forget_other_switch()?;
    system.worker.restart().await?;

    system.cancel(&payment.payment_id).await?;
    system.wait_for_state(&payment.payment_id, "cancelling").await?;
    // The database's clock, which the retention counts on.
    sqlx::query("UPDATE payments SET first_attempt_at = first_attempt_at - interval '10 years'")
        .execute(&system.database.pool)
        .await?;
    system.wait_for_state(&payment.payment_id, "needs_operator").await?;
    let reason = system.operator_reason(&payment.payment_id).await?;
    assert_eq!(reason.as_deref(), Some("switch_retention_expired"));
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "held while the payment needs an operator");

    system.switch.finish_transfer(&payment.reference, "reject").await?;
    let decision = decide(&system, &payment.payment_id, Action::Release).await?;
    let result = outcome(&system, &decision).await?;
    assert!(matches!(result, DecisionOutcome::Released(_)), "{result:?}");
    system.wait_for_state(&payment.payment_id, "cancelled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}
