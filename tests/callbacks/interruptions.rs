//! R30: at each await of the workflow, the customer cancels the payment, or an operator cancels, terminates or resets the
//! workflow. The switch's answer to our cancel decides, and nothing is submitted again.
//!
//! A cell of a table has the final state and the number of submits that the switch received; an interruption that
//! Temporal refused is in brackets. `reset to its first task` repeats everything under another run id, which the ledger does
//! not allow to reserve again; `reset to its last task` keeps the events before it.
//!
//! Where submit is an ordinary activity, it is an await of its own, and the rows of `interruptions.txt` differ from those of
//! `interruptions_first_task.txt`, where reserve and submit are made within the first workflow task: a task that is not completed
//! cannot be reset, and a termination does not stop it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::{join, try_join, try_join_all};
use serde_json::json;
use temporalio_client::WorkflowCancelOptions;
use testkit::system::{AcceptedPayment, payment_request};
use testkit::temporal::{EventType, ResetTo};
use testkit::wait::until;
use testkit::{System, SystemOptions, TestCallback};

use crate::golden_table::{GoldenTable, Results};
use testkit::row_lock::{lock_account, wait_until_blocked, waiting_queries};

/// Delay of a held request at the switch.
const HELD_MS: u64 = 6_000;
const AMOUNT_MINOR: i64 = 500;
/// Time limit for one step.
const WITHIN: Duration = Duration::from_secs(60);

/// The payment of one table cell.
struct Cell {
    row: String,
    column: String,
    payment: AcceptedPayment,
}

/// The column of an interruption, and Temporal's error if it refused.
type Interruption = (String, Option<String>);

#[tokio::test]
async fn r30_a_workflow_interrupted_at_any_await_cancels_and_never_resubmits() -> anyhow::Result<()> {
    let options = SystemOptions { commits_may_be_lost: true, ..SystemOptions::default() }
        // A callback with another amount calls operators at once.
        .with_profile("confirm_by_query", "never");
    interrupt_at_each_await("interruptions", options, include_str!("interruptions.txt")).await
}

#[tokio::test]
async fn r30_a_workflow_interrupted_in_its_first_task_cancels_and_never_resubmits() -> anyhow::Result<()> {
    let table = include_str!("interruptions_first_task.txt");
    interrupt_at_each_await("first-task-interruptions", SystemOptions::default(), table).await
}

/// The switch has no callbacks.
#[tokio::test]
async fn r30_a_workflow_interrupted_while_it_polls_cancels_and_never_resubmits() -> anyhow::Result<()> {
    let options = SystemOptions { shape: json!({"callback": false}), ..SystemOptions::default() }
        .with_profile("has_callback", false);
    interrupt_at_each_await("polling-interruptions", options, include_str!("interruptions_polling.txt")).await
}

/// The switch has no references.
#[tokio::test]
async fn r30_a_workflow_interrupted_while_it_waits_for_its_account_never_submits_twice() -> anyhow::Result<()>
{
    let options = SystemOptions {
        shape: json!({"keys": false, "dedup": false, "tombstone": false, "callback": false}),
        ..SystemOptions::default()
    };
    let options = options
        .with_profile("strategy", "validate")
        .with_profile("deduplicates", false)
        .with_profile("tombstones", false)
        .with_profile("has_callback", false);
    interrupt_at_each_await("queued-interruptions", options, include_str!("interruptions_queued.txt")).await
}

async fn interrupt_at_each_await(name: &str, options: SystemOptions, table: &str) -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    let table = GoldenTable::parse(table)?;
    let options = options
        .with_profile("attempt_timeout_ms", HELD_MS + 2_000)
        .with_profile("submit_budget_ms", 40_000)
        // The end of the SLA is not the subject of this test.
        .with_profile("sla_ms", 300_000);
    let system = System::start(name, options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;

    // One at a time, each with its own account lock: the expected results of the resets require that the first workflow
    // task is not completed yet.
    let mut reserved = Vec::new();
    for (n, (_, column, _)) in table.cells().filter(|(row, ..)| *row == "reserve").enumerate() {
        reserved.push(run_reserve(&system, column, &format!("reserve-{n}")).await?);
    }

    // Paused until the behaviour for each payment is set. Each row has its own account, which some rows lock and one row
    // freezes.
    system.worker.pause()?;
    let mut at_the_switch = Vec::new();
    let has_row = |row: &&str| table.cells().any(|(head, ..)| head == *row);
    for row in
        ["query", "submit", "poll", "callback", "cancel", "recall", "operator"].into_iter().filter(has_row)
    {
        system.open_account(row).await?;
        at_the_switch.push(accept(&system, &table, row).await?);
    }
    system.worker.resume()?;
    let at_the_switch = try_join_all(at_the_switch.iter().map(|cells| run_at_switch(&system, cells)));
    let in_the_ledger = async {
        let mut results = Vec::new();
        // One row at a time, since each blocked step occupies a connection of the worker.
        for row in ["debit", "release"].into_iter().filter(has_row) {
            results.push(run_locked(&system, &table, row).await?);
        }
        if has_row(&"account") {
            results.push(run_queued(&system, &table).await?);
        }
        anyhow::Ok(results)
    };
    let (at_the_switch, in_the_ledger) = join(at_the_switch, in_the_ledger).await;
    let results = at_the_switch?.into_iter().chain(in_the_ledger?).chain(reserved);
    table.compare(&results.flatten().collect())?;
    assert_eq!(system.audit().await?.open, 0);
    Ok(())
}

/// Makes the payments of one table row, from the account with the row's name.
async fn accept(system: &System, table: &GoldenTable, row: &str) -> anyhow::Result<Vec<Cell>> {
    let cells = table.cells().filter(|(head, ..)| *head == row);
    try_join_all(cells.map(|(row, column, _)| async move {
        let payment = pay_from(system, row).await?;
        let behaviour = match row {
            "query" => json!({"query": [{"delay_ms": HELD_MS}]}),
            "submit" => json!({"submit": [{"accept_hang_ms": HELD_MS}]}),
            "cancel" => json!({"cancel": [{"fault": "in_process", "times": "always"}]}),
            "recall" => json!({"recall": [{"fault": "in_process", "times": "always"}]}),
            _ => json!({}),
        };
        system.switch.set_behaviour(&payment.reference, behaviour).await?;
        Ok(Cell { row: row.to_owned(), column: column.to_owned(), payment })
    }))
    .await
}

async fn pay_from(system: &System, account: &str) -> anyhow::Result<AcceptedPayment> {
    let mut body = payment_request("5.00");
    body["source_account"] = account.into();
    system.pay_with(&body).await
}

/// Interrupts the payments of one table row while they await the switch; returns their results.
async fn run_at_switch(system: &System, cells: &[Cell]) -> anyhow::Result<Results> {
    if cells.iter().any(|cell| cell.row == "recall") {
        // Frozen after all payments have reserved, since a reserve from a frozen account is refused.
        try_join_all(cells.iter().map(|cell| system.wait_for_state(&cell.payment.payment_id, "submitted")))
            .await?;
        let freeze = "UPDATE accounts SET status = 'frozen' WHERE account_id = 'recall'";
        sqlx::query(freeze).execute(&system.database.pool).await?;
    }
    try_join_all(cells.iter().map(|cell| drive(system, cell))).await?;
    let interruptions = try_join_all(cells.iter().map(|cell| interrupt(system, cell))).await?;
    results(system, cells, interruptions).await
}

/// Interrupts one payment at its first step, the reserve, which waits for the row lock of the account.
async fn run_reserve(system: &System, column: &str, account: &str) -> anyhow::Result<Results> {
    system.open_account(account).await?;
    let lock = lock_account(system, account).await?;
    let payment = pay_from(system, account).await?;
    let cell = Cell { row: "reserve".into(), column: column.to_owned(), payment };
    wait_until_blocked(system, &lock, 1).await?;
    let interruption = if column == "the customer cancels" {
        // The cancel waits for the payment's row, which the blocked step has locked.
        let unlock = async {
            until("the cancel waits for the payment's row", WITHIN, || async {
                let queries = waiting_queries(system, &lock).await?;
                Ok(queries.iter().any(|query| query.contains("FROM payments")).then_some(()))
            })
            .await?;
            Ok(lock.transaction.rollback().await?)
        };
        try_join(interrupt(system, &cell), unlock).await?.0
    } else {
        let interruption = interrupt(system, &cell).await?;
        lock.transaction.rollback().await?;
        interruption
    };
    results(system, &[cell], vec![interruption]).await
}

/// Interrupts the payments of one table row at a ledger step, while the step waits for the row lock of the account.
async fn run_locked(system: &System, table: &GoldenTable, row: &str) -> anyhow::Result<Results> {
    system.open_account(row).await?;
    let cells = accept(system, table, row).await?;
    try_join_all(cells.iter().map(|cell| system.wait_for_state(&cell.payment.payment_id, "submitted")))
        .await?;
    let lock = lock_account(system, row).await?;
    let outcome = if row == "debit" { "settle" } else { "reject" };
    try_join_all(cells.iter().map(|cell| system.switch.finish_transfer(&cell.payment.reference, outcome)))
        .await?;
    wait_until_blocked(system, &lock, cells.len()).await?;
    // A customer's cancel waits for the payment's row, which the blocked step has locked.
    let (customers, operators): (Vec<_>, Vec<_>) =
        cells.iter().partition(|cell| cell.column == "the customer cancels");
    let by_customers = try_join_all(customers.into_iter().map(|cell| interrupt(system, cell)));
    let by_operators = async {
        let interruptions = try_join_all(operators.into_iter().map(|cell| interrupt(system, cell))).await;
        lock.transaction.rollback().await?;
        interruptions
    };
    let (mut by_customers, by_operators) = try_join(by_customers, by_operators).await?;
    by_customers.extend(by_operators);
    results(system, &cells, by_customers).await
}

/// Interrupts payments that wait for the account of another payment, which is at the switch.
async fn run_queued(system: &System, table: &GoldenTable) -> anyhow::Result<Results> {
    let row = "account";
    system.open_account(row).await?;
    // Of another amount: at this switch, one of theirs could be theirs.
    let mut body = payment_request("6.00");
    body["source_account"] = row.into();
    let first = system.pay_with(&body).await?;
    system.wait_for_state(&first.payment_id, "submitted").await?;
    let cells = accept(system, table, row).await?;
    // The workflow starts the timer after it has requested the account.
    let waiting = cells.iter().map(|cell| {
        let id = &cell.payment.payment_id;
        system.wait_for_event(id, EventType::TimerStarted)
    });
    try_join_all(waiting).await?;
    let interruptions = try_join_all(cells.iter().map(|cell| interrupt(system, cell))).await?;
    system.switch.finish_transfer(&first.reference, "settle").await?;
    results(system, &cells, interruptions).await
}

async fn results(
    system: &System,
    cells: &[Cell],
    interruptions: Vec<Interruption>,
) -> anyhow::Result<Results> {
    let errors: BTreeMap<_, _> = interruptions.into_iter().collect();
    try_join_all(cells.iter().map(|cell| unblock(system, cell, errors[&cell.column].is_some()))).await?;
    let results = try_join_all(cells.iter().map(|cell| result(system, cell, &errors[&cell.column]))).await?;
    Ok(results.into_iter().collect())
}

/// Drives the payment to the await of its row.
async fn drive(system: &System, cell: &Cell) -> anyhow::Result<()> {
    let (id, reference) = (cell.payment.payment_id.as_str(), cell.payment.reference.as_str());
    let received = |operation: &'static str| {
        until("the switch receives the request", WITHIN, move || async move {
            Ok((system.switch.request_count(reference, operation).await? > 0).then_some(()))
        })
    };
    match cell.row.as_str() {
        "query" => return received("query").await,
        "submit" => {
            return until("the switch has accepted the transfer", WITHIN, || async {
                Ok(system.switch.transfer_status(reference).await?.map(|_| ()))
            })
            .await;
        }
        _ => system.wait_for_state(id, "submitted").await?,
    }
    match cell.row.as_str() {
        "poll" => {
            let slow = json!({"query": [{"fault": {"delay_ms": HELD_MS}, "times": "always"}]});
            system.switch.set_behaviour(reference, slow).await?;
            let polled = system.switch.request_count(reference, "query").await?;
            until("the switch receives a poll", WITHIN, || async {
                Ok((system.switch.request_count(reference, "query").await? > polled).then_some(()))
            })
            .await
        }
        "callback" => system.wait_for_event(id, EventType::TimerStarted).await.map(drop),
        "cancel" => {
            system.post_callback(&TestCallback::failure(reference, AMOUNT_MINOR)).await?;
            received("cancel").await
        }
        "recall" => {
            system.switch.finish_transfer(reference, "settle").await?;
            received("recall").await
        }
        "operator" => {
            system.post_callback(&TestCallback::success(reference, AMOUNT_MINOR + 1)).await?;
            system.wait_for_state(id, "needs_operator").await
        }
        other => bail!("unknown row {other}"),
    }
}

/// Interrupts the payment as its column says.
async fn interrupt(system: &System, cell: &Cell) -> anyhow::Result<Interruption> {
    let id = cell.payment.payment_id.as_str();
    let mut error = None;
    match cell.column.as_str() {
        "the customer cancels" => {
            // 503 if the row was locked for too long; 409 if the payment ended while the cancel waited for the row.
            until("the API accepts the customer's cancel", WITHIN, || async {
                let status = system.cancel(id).await?.status().as_u16();
                Ok(matches!(status, 202 | 409).then_some(()))
            })
            .await?;
        }
        "the workflow is cancelled" => {
            system
                .workflow(id)
                .await?
                .cancel(WorkflowCancelOptions::default())
                .await
                .context(id.to_owned())?;
        }
        "the workflow is terminated" => {
            system.terminate_workflow(id).await.context(id.to_owned())?;
        }
        "reset to its first task" => error = reset(system, id, ResetTo::First).await,
        "reset to its last task" => error = reset(system, id, ResetTo::Last).await,
        other => bail!("unknown column {other}"),
    }
    Ok((cell.column.clone(), error))
}

async fn reset(system: &System, id: &str, to: ResetTo) -> Option<String> {
    system.reset(id, to).await.err().map(|error| error.to_string())
}

/// Removes what blocked the payment. After a reset to the last task, or a refused reset, the payment may still wait for its
/// callback.
async fn unblock(system: &System, cell: &Cell, is_refused: bool) -> anyhow::Result<()> {
    let reference = cell.payment.reference.as_str();
    match (cell.row.as_str(), cell.column.as_str()) {
        ("cancel" | "recall", _) => system.switch.set_behaviour(reference, json!({})).await,
        // The recovery workflow cancels the pending transfer. A reset keeps the signals, so that run needs an operator again.
        ("operator", "the workflow is terminated") => Ok(()),
        ("operator", _) => system.switch.finish_transfer(reference, "settle").await,
        ("reserve", "reset to its first task")
        | ("reserve" | "query" | "submit" | "callback" | "poll" | "account", "reset to its last task")
        | ("account", "reset to its first task") => settle(system, cell).await,
        _ if is_refused => settle(system, cell).await,
        _ => Ok(()),
    }
}

/// Settles the payment's transfer, unless it ends otherwise.
async fn settle(system: &System, cell: &Cell) -> anyhow::Result<()> {
    let reference = cell.payment.reference.as_str();
    until("the transfer is settled or cancelled", WITHIN, || async {
        let status = system.switch.transfer_status(reference).await?;
        if status.as_deref() == Some("PENDING") {
            // It may be cancelled concurrently.
            let _ = system.switch.finish_transfer(reference, "settle").await;
        }
        let ended = system.state(&cell.payment.payment_id).await? == "failed";
        Ok((ended || matches!(status.as_deref(), Some("SETTLED" | "CANCELLED"))).then_some(()))
    })
    .await
}

/// The result of a cell: the final state and the number of submits.
async fn result(
    system: &System,
    cell: &Cell,
    error: &Option<String>,
) -> anyhow::Result<((String, String), String)> {
    let id = cell.payment.payment_id.as_str();
    let ended = until("the payment has ended", WITHIN, || async {
        let state = system.state(id).await?;
        let ended = matches!(state.as_str(), "settled" | "rejected" | "failed" | "timed_out" | "cancelled");
        Ok(ended.then_some(state))
    })
    .await;
    let result = match ended {
        Ok(end) => {
            let submits = system.switch.request_count(&cell.payment.reference, "submit").await?;
            let error = error.iter().map(|error| format!("({error}) ")).collect::<String>();
            format!("{error}{end} {submits}")
        }
        Err(error) => format!("{error}: {}", system.timeline(id).await?.join(", ")),
    };
    Ok(((cell.row.clone(), cell.column.clone()), result))
}
