//! Drives the paths of one system, some at once.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::future::try_join_all;
use payment_protocol::decision::Action;
use payment_protocol::ids::SwitchName;
use payment_protocol::keys::account_lock_id;
use serde_json::{Value, json};
use sqlx::{Postgres, Transaction};
use temporalio_client::WorkflowTerminateOptions;
use testkit::system::{AcceptedPayment, payment_request};
use testkit::temporal::{EventType, HistoryEvent, ResetTo};
use testkit::wait::until;
use testkit::{System, TestCallback};

use crate::groups::Path;
use crate::people;

const AMOUNT_MINOR: i64 = 500;
/// How long a step may take.
const WITHIN: Duration = Duration::from_secs(60);

/// How the paths are driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Some at once.
    Some,
    /// One after the other; wherever one waits, another payment takes its place in the worker's memory.
    PushedOut,
}

/// Drives every path to its end; gives the workflows under the names of their histories.
pub(crate) async fn drive_all(
    system: &System,
    paths: &[Path],
    together: Together,
) -> anyhow::Result<Vec<(String, String)>> {
    let at_once = if together == Together::Some { 6 } else { 1 };
    let mut workflows = Vec::new();
    for paths in paths.chunks(at_once) {
        // The worker stands still until the switch knows how to treat each payment.
        system.worker.pause()?;
        let accepted = try_join_all(paths.iter().map(|path| accept(system, path))).await?;
        system.worker.resume()?;
        let driven = paths.iter().zip(accepted).map(|(path, (payment, lock))| async move {
            if let Some(lock) = lock {
                // Reserve was not done on the spot, so the server has it done.
                system.wait_for_event(&payment.payment_id, EventType::ActivityTaskScheduled).await?;
                lock.rollback().await?;
            }
            let driven = drive(system, path, &payment, together).await;
            driven.with_context(|| format!("path {}", path.name))
        });
        workflows.extend(try_join_all(driven).await?.into_iter().flatten());
    }
    Ok(workflows)
}

/// Waits until the payment's workflow waits for its callback, or for what our cancel brings.
async fn waits(system: &System, id: &str, until: EventType, together: Together) -> anyhow::Result<()> {
    system.wait_for_event(id, until).await?;
    push_out(system, together).await
}

/// Lets another payment take the place of the one that waits, where the paths are driven so.
async fn push_out(system: &System, together: Together) -> anyhow::Result<()> {
    if together == Together::PushedOut {
        let other = system.pay_with(&too_much()).await?;
        system.wait_for_state(&other.payment_id, "rejected").await?;
    }
    Ok(())
}

/// More than the account holds.
fn too_much() -> Value {
    payment_request("10000.01")
}

/// Makes the payment of a path. One has its account locked, so that reserve has to wait.
async fn accept(
    system: &System,
    path: &Path,
) -> anyhow::Result<(AcceptedPayment, Option<Transaction<'static, Postgres>>)> {
    let mut body = if path.name == "rejected" { too_much() } else { payment_request("5.00") };
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
        let mut locking = system.database.pool.begin().await?;
        sqlx::query("SELECT FROM accounts WHERE account_id = $1 FOR UPDATE")
            .bind(path.name)
            .execute(&mut *locking)
            .await?;
        lock = Some(locking);
    }
    let payment = system.pay_with(&body).await?;
    system.switch.set_behaviour(&payment.reference, path.behaviour.clone()).await?;
    Ok((payment, lock))
}

async fn drive(
    system: &System,
    path: &Path,
    payment: &AcceptedPayment,
    together: Together,
) -> anyhow::Result<Vec<(String, String)>> {
    let (id, reference) = (payment.payment_id.as_str(), payment.reference.as_str());
    match path.name {
        "rejected" | "submit_refused" | "submit_unknown" | "settled_by_query" => {}
        "decided_settle" | "decided_release" | "decided_ask_again" => {
            system.wait_for_state(id, "needs_operator").await?;
            closed(system, id, false).await?;
            push_out(system, together).await?;
        }
        // Its timer is the wait for the account, which is granted in this moment.
        "locked_settled" => drop(system.wait_for_event(id, EventType::TimerStarted).await?),
        _ => waits(system, id, EventType::TimerStarted, together).await?,
    }
    match path.name {
        "settled" | "settled_after_slow_reserve" | "reconciled_settled" | "polled_settled" => {
            system.switch.finish_transfer(reference, "settle").await?;
        }
        "locked_settled" => {
            until("the switch has the transfer", WITHIN, || async {
                Ok(system.switch.transfer_status(reference).await?.map(|_| ()))
            })
            .await?;
            system.wait_for_state(id, "submitted").await?;
            push_out(system, together).await?;
            system.switch.finish_transfer(reference, "settle").await?;
        }
        "decided_settle" => drop(people::decide(system, id, Action::Debit).await?),
        "decided_release" => drop(people::decide(system, id, Action::Release).await?),
        "decided_ask_again" => {
            system.switch.set_behaviour(reference, json!({})).await?;
            people::decide(system, id, Action::RetryCancel).await?;
        }
        "failure_reported" => system.switch.finish_transfer(reference, "reject").await?,
        "customer_cancelled" => {
            system.cancel(id).await?.error_for_status()?;
        }
        "settled_while_cancelling" => {
            // Neither our cancel nor the look beside it decides anything: only the callback can.
            let undecided = json!({
                "cancel": [{"fault": "in_process", "times": "always"}],
                "query": [{"fault": "error_500", "times": "always"}],
            });
            system.switch.set_behaviour(reference, undecided).await?;
            system.cancel(id).await?.error_for_status()?;
            waits(system, id, EventType::TimerCanceled, together).await?;
            system.wait_for_state(id, "cancelling").await?;
            system.switch.finish_transfer(reference, "settle").await?;
        }
        "recalled" | "recall_refused" => {
            sqlx::query("UPDATE accounts SET status = 'frozen' WHERE account_id = $1")
                .bind(path.name)
                .execute(&system.database.pool)
                .await?;
            system.switch.finish_transfer(reference, "settle").await?;
        }
        "settled_before_a_person" => {
            ensure!(system.post_callback(&TestCallback::success(reference, AMOUNT_MINOR + 1)).await? == 200);
            system.wait_for_state(id, "needs_operator").await?;
            system.switch.finish_transfer(reference, "settle").await?;
        }
        "resumed" => {
            system.workflow(id).await?.terminate(WorkflowTerminateOptions::default()).await?;
        }
        "reset" => system.reset(id, ResetTo::First).await?,
        _ => {}
    }
    system.wait_for_state(id, path.end).await?;
    check(system, path, payment).await?;
    let named = |name: &str, workflow_id: &str| (name.to_owned(), workflow_id.to_owned());
    let workflows = match path.name {
        "resumed" => vec![named("terminated", id), named("resumed", &format!("{id}:resume:1"))],
        "locked_settled" => {
            let switch = SwitchName::new("mock")?;
            let lock = account_lock_id(&system.task_queue, &switch, "XX-BOB");
            vec![named(path.name, id), named("account_lock", &lock)]
        }
        name => vec![named(name, id)],
    };
    for (_, workflow_id) in &workflows {
        closed(system, workflow_id, path.end != "needs_operator").await?;
    }
    Ok(workflows)
}

/// Where the end alone does not say that the path was taken.
async fn check(system: &System, path: &Path, payment: &AcceptedPayment) -> anyhow::Result<()> {
    let (final_status_source, cause): (Option<String>, Option<String>) =
        sqlx::query_as("SELECT final_status_source, cause->>'code' FROM payments WHERE payment_id = $1")
            .bind(&payment.payment_id)
            .fetch_one(&system.database.pool)
            .await?;
    let seen = (final_status_source.as_deref(), cause.as_deref());
    let wanted = match path.name {
        "settled" | "settled_after_slow_reserve" | "settled_before_a_person" => (Some("callback"), None),
        "settled_by_query" => (Some("query"), None),
        "settled_after_sla" => (Some("cancel"), Some("sla_expired")),
        "settled_while_cancelling" => (Some("callback"), Some("customer_cancel")),
        "submit_refused" => (Some("rejected"), Some("submit_refused")),
        "submit_unknown" => (Some("cancelled"), Some("submit_unknown")),
        "failure_reported" => (Some("rejected"), Some("failure_reported")),
        "recalled" => (Some("callback"), Some("debit_refused")),
        "resumed" | "reset" => (Some("cancelled"), Some("interrupted")),
        "polled_settled" | "locked_settled" => (Some("query"), None),
        "polled_timed_out" => (Some("cancelled"), Some("sla_expired")),
        "reconciled_settled" => (Some("callback"), None),
        "decided_settle" | "decided_release" => (Some("decision"), Some("sla_expired")),
        "decided_ask_again" => (Some("cancel"), Some("sla_expired")),
        _ => return Ok(()),
    };
    if seen != wanted {
        let timeline = system.timeline(&payment.payment_id).await?;
        bail!("final_status and cause are {seen:?}, not {wanted:?}: {timeline:#?}");
    }
    Ok(())
}

/// Waits until the workflow is closed, or until all of its last task is recorded where it stays open.
async fn closed(system: &System, workflow_id: &str, closes: bool) -> anyhow::Result<()> {
    until("the history is whole", WITHIN, || async {
        let history = system.history(workflow_id).await?;
        let last = history.last().map(HistoryEvent::event_type);
        let whole = match last {
            Some(
                EventType::WorkflowExecutionCompleted
                | EventType::WorkflowExecutionFailed
                | EventType::WorkflowExecutionTerminated,
            ) => closes,
            Some(EventType::MarkerRecorded) => !closes,
            _ => false,
        };
        Ok(whole.then_some(()))
    })
    .await
}
