//! PostgreSQL confirms a commit and loses it, as a failover to an asynchronous standby does (R30b).

use std::time::Duration;

use serde_json::{Value, json};
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::temporal::EventType;
use testkit::wait::until;
use testkit::{System, SystemOptions};

use crate::hung_switch::scheduled_activity;

fn losing_commits() -> SystemOptions {
    SystemOptions { commits_may_be_lost: true, ..SystemOptions::default().with_long_attempts() }
}

/// Leaves the payment as a promoted standby has it that lacks the last commits: without what they wrote.
async fn lose_the_attempt(system: &System, payment_id: &str) -> anyhow::Result<()> {
    let payment = "UPDATE payments SET attempts = 0, first_attempt_at = NULL, submit_deadline = NULL, state = 'reserved'
                   WHERE payment_id = $1";
    lose(system, payment_id, ["DELETE FROM submissions WHERE payment_id = $1", payment]).await
}

/// The same, and the attempt remains: its answer is lost.
async fn lose_the_answer(system: &System, payment_id: &str) -> anyhow::Result<()> {
    let attempt = "UPDATE submissions SET outcome = NULL, answered_at = NULL WHERE payment_id = $1";
    let payment = "UPDATE payments SET state = 'reserved' WHERE payment_id = $1";
    lose(system, payment_id, [attempt, payment]).await
}

async fn lose(system: &System, payment_id: &str, changes: [&'static str; 2]) -> anyhow::Result<()> {
    let mut tx = system.database.pool.begin().await?;
    // Rows change without their triggers.
    sqlx::query("SET LOCAL session_replication_role = replica").execute(&mut *tx).await?;
    for change in changes {
        sqlx::query(change).bind(payment_id).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// A payment that the switch accepted and holds.
async fn held_payment(name: &str, options: SystemOptions) -> anyhow::Result<(System, AcceptedPayment)> {
    let system = System::start(name, options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("33.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    Ok((system, payment))
}

/// A payment that the switch holds, and whose attempt's record is lost.
async fn held_payment_with_a_lost_attempt(name: &str) -> anyhow::Result<(System, AcceptedPayment)> {
    let (system, payment) = held_payment(name, losing_commits()).await?;
    lose_the_attempt(&system, &payment.payment_id).await?;
    Ok((system, payment))
}

/// The submit attempt's record is lost while the transfer is pending at the switch: the customer's cancel must not be taken for
/// the cancel of a payment that was never sent.
#[tokio::test]
async fn r30b_a_payment_with_a_lost_attempt_is_cancelled_at_the_switch() -> anyhow::Result<()> {
    let (system, payment) = held_payment_with_a_lost_attempt("lost-attempt").await?;
    system.cancel(&payment.payment_id).await?.error_for_status()?;
    system.wait_for_state(&payment.payment_id, "cancelled").await?;
    assert_eq!(system.switch.request_count(&payment.reference, "cancel").await?, 1, "the switch was asked");
    assert_eq!(system.switch.transfer_status(&payment.reference).await?.as_deref(), Some("CANCELLED"));
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}

/// The same, and the switch settled the transfer before it was asked: the customer is charged once, without a person.
#[tokio::test]
async fn r30b_a_settled_payment_with_a_lost_attempt_is_debited() -> anyhow::Result<()> {
    let (system, payment) = held_payment_with_a_lost_attempt("lost-attempt-settled").await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.cancel(&payment.payment_id).await?.error_for_status()?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 3_300);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

/// Strategy validate: the marker is lost with the attempt, and the switch lists the transfer. It may be an earlier one, so nothing is
/// released; with the marker's word alone it would be taken for a transfer that was never sent.
#[tokio::test]
async fn r30b_a_transfer_with_a_lost_marker_is_not_released() -> anyhow::Result<()> {
    let mut options = losing_commits()
        .with_profile("strategy", "validate")
        .with_profile("deduplicates", false)
        .with_profile("tombstones", false)
        .with_profile("has_callback", false)
        .with_profile("submit_deadline_ms", 10_000);
    options.shape = json!({"keys": false, "dedup": false, "tombstone": false, "callback": false});
    let system = System::start("lost-marker", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("33.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    lose_the_attempt(&system, &payment.payment_id).await?;
    system.cancel(&payment.payment_id).await?.error_for_status()?;
    system.wait_for_state(&payment.payment_id, "needs_operator").await?;
    let reason: String = sqlx::query_scalar("SELECT operator_reason FROM payments WHERE payment_id = $1")
        .bind(&payment.payment_id)
        .fetch_one(&system.database.pool)
        .await?;
    assert_eq!(reason, "ambiguous_transfer");
    assert_eq!(system.available().await?, OPENING_MINOR - 3_300, "the hold was released");
    assert_eq!(system.audit().await?.open, 1);
    Ok(())
}

/// The switch accepted the transfer, the commit of its answer is lost, and the switch fails over to a copy that leaves a tombstone for what it
/// does not know: only the workflow knows of the acceptance. Nothing is released, and the settlement that follows is debited.
#[tokio::test]
async fn r30b_an_acceptance_that_only_temporal_knows_outweighs_a_tombstone() -> anyhow::Result<()> {
    // The copy of the switch confirms no callback.
    let options = losing_commits().with_profile("confirm_by_query", "never");
    let (system, payment) = held_payment("lost-acceptance", options).await?;
    let id = payment.payment_id.as_str();
    lose_the_answer(&system, id).await?;
    system.switch.forget_transfer(&payment.reference).await?;
    system.cancel(id).await?.error_for_status()?;
    system.wait_for_state(id, "needs_operator").await?;
    assert_eq!(system.exceptions(id).await?, ["accepted_then_unknown"]);
    assert_eq!(system.available().await?, OPENING_MINOR - 3_300, "the hold was released");
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 3_300);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn keep_the_acceptance(system: &System) -> anyhow::Result<()> {
    sqlx::raw_sql("CREATE TABLE kept AS SELECT * FROM payments").execute(&system.database.pool).await?;
    Ok(())
}

/// Leaves the payment as it was kept, at an instant after its time for a start.
async fn lose_all_but_the_acceptance(system: &System) -> anyhow::Result<()> {
    system
        .damage_ledger(
            "DELETE FROM submissions; DELETE FROM journal WHERE payment_id IS NOT NULL; DELETE FROM operations WHERE payment_id IS NOT NULL;
             DELETE FROM holds; DELETE FROM payments; INSERT INTO payments SELECT * FROM kept;
             UPDATE payments SET valid_until = clock_timestamp()",
        )
        .await
}

/// Everything after the acceptance of a payment that settled is lost, and its workflow has ended: nothing is sent a second time, although
/// the record shows no attempt.
#[tokio::test]
async fn r30b_a_settled_payment_whose_start_was_lost_is_not_sent_again() -> anyhow::Result<()> {
    let mut options =
        losing_commits().with_profile("strategy", "at_most_once").with_profile("deduplicates", false);
    options.shape = json!({"dedup": false});
    let mut system = System::start("lost-end", options).await?;
    system.worker.kill().await?;
    let payment = system.pay("33.00").await?;
    let id = payment.payment_id.as_str();
    keep_the_acceptance(&system).await?;
    system.worker.restart().await?;
    system.wait_for_state(id, "settled").await?;
    system.wait_until_all_have_ended_within(Duration::from_secs(60)).await?;
    system.worker.kill().await?;
    lose_all_but_the_acceptance(&system).await?;
    system.worker.restart().await?;
    // The switch says that the money left; nothing is held for it any more.
    system.wait_for_state(id, "needs_operator").await?;
    assert_eq!(system.switch.transfers().await?.len(), 1, "sent again");
    Ok(())
}

/// Everything after the acceptance is lost, and the time for a start has passed: the payment is not refused as one that never started, because
/// Temporal knows its workflow, and the switch is asked.
#[tokio::test]
async fn r30b_a_payment_whose_start_was_lost_is_not_refused_unasked() -> anyhow::Result<()> {
    let mut system = System::start("lost-start", losing_commits()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    system.worker.kill().await?;
    let payment = system.pay("33.00").await?;
    let id = payment.payment_id.as_str();
    keep_the_acceptance(&system).await?;
    system.worker.restart().await?;
    system.wait_for_state(id, "submitted").await?;
    system.worker.kill().await?;
    lose_all_but_the_acceptance(&system).await?;
    system.worker.restart().await?;
    until("the starter has decided about the payment", Duration::from_secs(60), || async {
        Ok((system.state(id).await? != "accepted").then_some(()))
    })
    .await?;
    system.cancel(id).await?.error_for_status()?;
    until("the transfer is cancelled", Duration::from_secs(60), || async {
        let status = system.switch.transfer_status(&payment.reference).await?;
        Ok((status.as_deref() == Some("CANCELLED")).then_some(()))
    })
    .await?;
    // The first cause names the end: the customer's cancel, or the submit whose try was killed and found no attempt.
    system.wait_until_all_have_ended_within(Duration::from_secs(60)).await?;
    let ended = system.state(id).await?;
    assert!(["cancelled", "failed"].contains(&ended.as_str()), "ended {ended}");
    Ok(())
}

/// An attempt that is answered late enough for its worker to be killed before.
fn options_with_slow_answers(strategy: &str) -> SystemOptions {
    losing_commits()
        .with_profile("strategy", strategy)
        .with_profile("attempt_timeout_ms", 5_000)
        .with_profile("submit_budget_ms", 120_000)
        .with_profile("sla_ms", 300_000)
}

/// Behaviour: the switch accepts the first submit, answers it late, and does not settle by itself.
fn slow_answer() -> Value {
    json!({"outcome": "hold", "submit": [{"accept_hang_ms": 4_500}]})
}

/// Kills the worker after the switch accepted the transfer and before its answer, and loses the record of the attempt. The next
/// try follows when the killed one has timed out at the server.
async fn lose_the_attempt_in_flight(system: &mut System, payment: &AcceptedPayment) -> anyhow::Result<()> {
    system.kill_worker_before_the_answer(payment).await?;
    lose_the_attempt(system, &payment.payment_id).await?;
    system.worker.restart().await
}

/// Where a commit may be lost, Temporal's record of a submit must not depend on the answer: the submit is scheduled before it is sent.
#[tokio::test]
async fn r30b_where_commits_may_be_lost_the_history_shows_a_submit_before_its_answer() -> anyhow::Result<()> {
    let system = System::start("recorded-submit", options_with_slow_answers("reference")).await?;
    system.switch.set_default_behaviour(slow_answer()).await?;
    let payment = system.pay("33.00").await?;
    until("the switch has accepted the transfer", Duration::from_secs(60), || async {
        Ok(system.switch.transfer_status(&payment.reference).await?.map(|_| ()))
    })
    .await?;
    let history = system.history(&payment.payment_id).await?;
    let answers: i64 = sqlx::query_scalar("SELECT count(*) FROM submissions WHERE outcome IS NOT NULL")
        .fetch_one(&system.database.pool)
        .await?;
    assert_eq!(answers, 0, "the switch has answered already");
    assert!(history.iter().any(|event| scheduled_activity(event) == Some("submit")));
    assert_eq!(system.audit().await?.open, 1);
    Ok(())
}

/// Strategy reference: the next try replays the reference. The switch answers with the first transfer, and the payment ends
/// right without a person.
#[tokio::test]
async fn s3_9_a_submit_with_a_lost_attempt_replays_at_the_switch() -> anyhow::Result<()> {
    let mut system = System::start("replayed-attempt", options_with_slow_answers("reference")).await?;
    system.switch.set_default_behaviour(slow_answer()).await?;
    let payment = system.pay("33.00").await?;
    lose_the_attempt_in_flight(&mut system, &payment).await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 2, "replayed once");
    assert_eq!(system.switch.transfers().await?.len(), 1, "the switch did not deduplicate");
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.exceptions(&payment.payment_id).await?, [""; 0]);
    assert_eq!(system.available().await?, OPENING_MINOR - 3_300);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

/// Strategy at_most_once: only Temporal knows that a try was made, so none follows. The tries before it were held back, and said
/// so.
#[tokio::test]
async fn r30b_an_at_most_once_submit_with_a_lost_attempt_is_not_repeated() -> anyhow::Result<()> {
    let mut options = options_with_slow_answers("at_most_once")
        .with_profile("deduplicates", false)
        .with_profile("has_query", false);
    options.shape = json!({"dedup": false, "query": false});
    let mut system = System::start("lost-single-attempt", options).await?;
    system.switch.set_default_behaviour(slow_answer()).await?;
    // Held back: the worker does not know the clock of a switch that never answered.
    system.mock_switch.kill().await?;
    let payment = system.pay("33.00").await?;
    let id = payment.payment_id.as_str();
    system.wait_for_attempt(id, "submit", 2).await?;
    system.mock_switch.restart().await?;
    lose_the_attempt_in_flight(&mut system, &payment).await?;
    system.wait_for_event(id, EventType::ActivityTaskCompleted).await?;

    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.cancel(id).await?.error_for_status()?;
    system.wait_for_state(id, "settled").await?;
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 1, "submitted once");
    assert_eq!(system.available().await?, OPENING_MINOR - 3_300);
    system.audit().await?;
    Ok(())
}
