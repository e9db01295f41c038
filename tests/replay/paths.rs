//! Drives the payments of one system along their paths.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::future::try_join_all;
use payment_protocol::decision::Action;
use payment_protocol::ids::SwitchName;
use payment_protocol::keys::account_lock_id;
use serde_json::{Value, json};
use sqlx::{Postgres, Transaction};
use testkit::system::{AcceptedPayment, payment_request};
use testkit::temporal::{EventType, HistoryEvent, ResetTo};
use testkit::wait::until;
use testkit::{System, TestCallback};

use crate::groups::Path;
use crate::operators;

const AMOUNT_MINOR: i64 = 500;
/// Time limit for one step.
const WITHIN: Duration = Duration::from_secs(60);

/// How the paths are driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Several paths concurrently.
    Concurrent,
    /// One path at a time; at each wait another payment evicts the workflow from the worker's cache.
    Evicted,
}

/// The name of a history, and its Workflow ID.
type NamedWorkflow = (String, String);

/// Drives every path to its end; returns the workflows whose histories are recorded.
pub(crate) async fn drive_all(
    system: &System,
    paths: &[Path],
    mode: Mode,
) -> anyhow::Result<Vec<NamedWorkflow>> {
    let concurrency = if mode == Mode::Concurrent { 6 } else { 1 };
    let mut workflows = Vec::new();
    for paths in paths.chunks(concurrency) {
        // Paused until the behaviour for each payment is set.
        system.worker.pause()?;
        let accepted = try_join_all(paths.iter().map(|path| accept(system, path))).await?;
        system.worker.resume()?;
        let driven = paths.iter().zip(accepted).map(|(path, (payment, lock))| async move {
            if let Some(lock) = lock {
                // The local activity for reserve gave up, so reserve is scheduled as an ordinary activity.
                system.wait_for_event(&payment.payment_id, EventType::ActivityTaskScheduled).await?;
                lock.rollback().await?;
            }
            let driven = drive(system, path, &payment, mode).await;
            driven.with_context(|| format!("path {}", path.name))
        });
        workflows.extend(try_join_all(driven).await?.into_iter().flatten());
    }
    Ok(workflows)
}

/// Waits for an event that shows that the workflow is waiting, then evicts the workflow if the mode says so.
async fn wait_and_evict(system: &System, id: &str, event: EventType, mode: Mode) -> anyhow::Result<()> {
    system.wait_for_event(id, event).await?;
    evict(system, mode).await
}

/// Evicts the waiting workflow from the worker's cache by another payment, if the mode says so.
async fn evict(system: &System, mode: Mode) -> anyhow::Result<()> {
    if mode == Mode::Evicted {
        let other = system.pay_with(&excessive_payment()).await?;
        system.wait_for_state(&other.payment_id, "rejected").await?;
    }
    Ok(())
}

/// A payment above the account's balance, which is rejected.
fn excessive_payment() -> Value {
    payment_request("10000.01")
}

/// Makes the payment of a path; returns the transaction that locks its account if the path needs a slow reserve.
async fn accept(
    system: &System,
    path: &Path,
) -> anyhow::Result<(AcceptedPayment, Option<Transaction<'static, Postgres>>)> {
    let mut body = if path.name == "rejected" { excessive_payment() } else { payment_request("5.00") };
    let mut lock = None;
    match path.name {
        "submit_unknown" | "timed_out" | "settled_after_sla" | "polled_timed_out" => {
            body["destination_account"] = "YY-BOB".into();
        }
        "recalled" | "recall_refused" | "settled_after_slow_reserve" => {
            system.open_account(path.name).await?;
            body["source_account"] = path.name.into();
        }
        _ => {}
    }
    if path.name == "settled_after_slow_reserve" {
        let mut transaction = system.database.pool.begin().await?;
        sqlx::query("SELECT FROM accounts WHERE account_id = $1 FOR UPDATE")
            .bind(path.name)
            .execute(&mut *transaction)
            .await?;
        lock = Some(transaction);
    }
    let payment = system.pay_with(&body).await?;
    system.switch.set_behaviour(&payment.reference, path.behaviour.clone()).await?;
    Ok((payment, lock))
}

/// Drives one payment along its path; returns the workflows whose histories are recorded.
async fn drive(
    system: &System,
    path: &Path,
    payment: &AcceptedPayment,
    mode: Mode,
) -> anyhow::Result<Vec<NamedWorkflow>> {
    let id = payment.payment_id.as_str();
    wait_for_decision_point(system, path, id, mode).await?;
    act(system, path, payment, mode).await?;
    system.wait_for_state(id, path.end).await?;
    check(system, path, payment).await?;
    let workflows = recorded_workflows(system, path, id)?;
    for (_, workflow_id) in &workflows {
        wait_until_recorded(system, workflow_id, path.end != "needs_operator").await?;
    }
    Ok(workflows)
}

/// Waits until the workflow waits for what [`act`] does.
async fn wait_for_decision_point(system: &System, path: &Path, id: &str, mode: Mode) -> anyhow::Result<()> {
    match path.name {
        "rejected" | "submit_refused" | "submit_unknown" | "settled_by_query" => Ok(()),
        "decision_debit" | "decision_release" | "decision_retry_cancel" => {
            system.wait_for_state(id, "needs_operator").await?;
            wait_until_recorded(system, id, false).await?;
            evict(system, mode).await
        }
        // The timer limits the wait for the account lock, which is granted at once.
        "account_lock_settled" => system.wait_for_event(id, EventType::TimerStarted).await.map(drop),
        _ => wait_and_evict(system, id, EventType::TimerStarted, mode).await,
    }
}

/// Does what determines the path: settles or rejects the transfer, cancels, decides, or interrupts the workflow.
async fn act(system: &System, path: &Path, payment: &AcceptedPayment, mode: Mode) -> anyhow::Result<()> {
    let (id, reference) = (payment.payment_id.as_str(), payment.reference.as_str());
    match path.name {
        "settled"
        | "settled_after_slow_reserve"
        | "reconciled_settled"
        | "polled_settled"
        | "confirmed_settled" => system.switch.finish_transfer(reference, "settle").await,
        "account_lock_settled" => {
            until("the switch has accepted the transfer", WITHIN, || async {
                Ok(system.switch.transfer_status(reference).await?.map(|_| ()))
            })
            .await?;
            system.wait_for_state(id, "submitted").await?;
            evict(system, mode).await?;
            system.switch.finish_transfer(reference, "settle").await
        }
        "unconfirmed_settled" => {
            let early = TestCallback::success(reference, AMOUNT_MINOR);
            ensure!(system.post_callback(&early).await? == 200, "the callback was refused");
            // The query before the debit confirmed nothing: the payment polls.
            wait_and_evict(system, id, EventType::ActivityTaskScheduled, mode).await?;
            system.switch.finish_transfer(reference, "settle").await
        }
        "decision_debit" => operators::decide(system, id, Action::Debit).await.map(drop),
        "decision_release" => operators::decide(system, id, Action::Release).await.map(drop),
        "decision_retry_cancel" => {
            system.switch.set_behaviour(reference, json!({})).await?;
            operators::decide(system, id, Action::RetryCancel).await.map(drop)
        }
        "failure_reported" => system.switch.finish_transfer(reference, "reject").await,
        "customer_cancelled" => Ok(system.cancel(id).await?.error_for_status().map(drop)?),
        "settled_while_cancelling" => settle_while_cancelling(system, payment, mode).await,
        "recalled" | "recall_refused" => {
            system.set_account_status(path.name, "frozen").await?;
            system.switch.finish_transfer(reference, "settle").await
        }
        "settled_awaiting_operator" => {
            let differing = TestCallback::success(reference, AMOUNT_MINOR + 1);
            ensure!(system.post_callback(&differing).await? == 200, "the callback was refused");
            system.wait_for_state(id, "needs_operator").await?;
            system.switch.finish_transfer(reference, "settle").await
        }
        "recovered" => Ok(system.terminate_workflow(id).await?),
        "reset" => system.reset(id, ResetTo::First).await,
        _ => Ok(()),
    }
}

/// Cancels the payment while neither cancel nor query decides, then settles the transfer.
async fn settle_while_cancelling(
    system: &System,
    payment: &AcceptedPayment,
    mode: Mode,
) -> anyhow::Result<()> {
    let (id, reference) = (payment.payment_id.as_str(), payment.reference.as_str());
    let undecided = json!({
        "cancel": [{"fault": "in_process", "times": "always"}],
        "query": [{"fault": "error_500", "times": "always"}],
    });
    system.switch.set_behaviour(reference, undecided).await?;
    system.cancel(id).await?.error_for_status()?;
    wait_and_evict(system, id, EventType::TimerCanceled, mode).await?;
    system.wait_for_state(id, "cancelling").await?;
    system.switch.finish_transfer(reference, "settle").await
}

/// The workflows of a path: the payment's own, and a recovery or account lock workflow.
fn recorded_workflows(system: &System, path: &Path, id: &str) -> anyhow::Result<Vec<NamedWorkflow>> {
    let named = |name: &str, workflow_id: &str| (name.to_owned(), workflow_id.to_owned());
    Ok(match path.name {
        "recovered" => vec![named("terminated", id), named("recovered", &format!("{id}:resume:1"))],
        "account_lock_settled" => {
            let switch = SwitchName::new("mock")?;
            let lock = account_lock_id(&system.task_queue, &switch, "XX-BOB");
            vec![named(path.name, id), named("account_lock", &lock)]
        }
        name => vec![named(name, id)],
    })
}

/// Checks the source of the final status and the cause, where the final state alone does not identify the path.
async fn check(system: &System, path: &Path, payment: &AcceptedPayment) -> anyhow::Result<()> {
    let (final_status_source, cause): (Option<String>, Option<String>) =
        sqlx::query_as("SELECT final_status_source, cause->>'code' FROM payments WHERE payment_id = $1")
            .bind(&payment.payment_id)
            .fetch_one(&system.database.pool)
            .await?;
    let recorded = (final_status_source.as_deref(), cause.as_deref());
    let expected = match path.name {
        "settled" | "settled_after_slow_reserve" | "settled_awaiting_operator" => (Some("callback"), None),
        "settled_by_query" | "confirmed_settled" | "unconfirmed_settled" => (Some("query"), None),
        "settled_after_sla" => (Some("cancel"), Some("sla_expired")),
        "settled_while_cancelling" => (Some("callback"), Some("customer_cancel")),
        "submit_refused" => (Some("rejected"), Some("submit_refused")),
        "submit_unknown" => (Some("tombstone"), Some("submit_unknown")),
        "failure_reported" => (Some("rejected"), Some("failure_reported")),
        "recalled" => (Some("recall"), Some("debit_refused")),
        "recovered" | "reset" => (Some("cancelled"), Some("interrupted")),
        "polled_settled" | "account_lock_settled" => (Some("query"), None),
        "polled_timed_out" => (Some("cancelled"), Some("sla_expired")),
        "reconciled_settled" => (Some("callback"), None),
        "decision_debit" | "decision_release" => (Some("decision"), Some("sla_expired")),
        "decision_retry_cancel" => (Some("cancel"), Some("sla_expired")),
        _ => return Ok(()),
    };
    if recorded != expected {
        let timeline = system.timeline(&payment.payment_id).await?;
        bail!("final status source and cause are {recorded:?}, expected {expected:?}: {timeline:#?}");
    }
    Ok(())
}

/// Waits until the history is complete: the workflow is closed, or, if it stays open, it has called an operator, and the timer of
/// the next call runs.
async fn wait_until_recorded(system: &System, workflow_id: &str, closes: bool) -> anyhow::Result<()> {
    until("the history is complete", WITHIN, || async {
        let history = system.history(workflow_id).await?;
        let events: Vec<_> = history.iter().map(HistoryEvent::event_type).collect();
        let is_complete = match events.as_slice() {
            [
                ..,
                EventType::WorkflowExecutionCompleted
                | EventType::WorkflowExecutionFailed
                | EventType::WorkflowExecutionTerminated,
            ] => closes,
            [.., EventType::TimerStarted] => !closes,
            _ => false,
        };
        Ok(is_complete.then_some(()))
    })
    .await
}
