//! R30: at each thing a payment awaits, the customer cancels, or an operator cancels, terminates or resets its
//! workflow. The switch is asked and obeyed, and nothing is sent again.
//!
//! A cell of `interrupted.txt` says how the payment ends and how many submits the switch received; what could
//! not be done stands in brackets. `reset to its first task` does everything again under another run id, which the
//! ledger does not let reserve a second time; `reset to its last task` keeps what is recorded before it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::{join, try_join, try_join_all};
use serde_json::json;
use sqlx::{Postgres, Transaction};
use temporalio_client::{WorkflowCancelOptions, WorkflowTerminateOptions};
use testkit::system::{AcceptedPayment, payment_request};
use testkit::temporal::{EventType, ResetTo};
use testkit::wait::until;
use testkit::{System, SystemOptions, TestCallback};

use crate::table::Table;

/// For how long the switch holds a request back.
const HELD_MS: u64 = 2_500;
const AMOUNT_MINOR: i64 = 500;
/// How long a step may take.
const WITHIN: Duration = Duration::from_secs(60);

/// The payment of one cell.
struct Cell {
    row: String,
    column: String,
    payment: AcceptedPayment,
}

/// What came of the cells, by row and column.
type Came = BTreeMap<(String, String), String>;

#[tokio::test]
async fn r30_an_interruption_at_each_await_cancels_and_never_resubmits() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    let table = Table::read(include_str!("interrupted.txt"))?;
    let options = SystemOptions::default()
        .with_profile("attempt_timeout_ms", HELD_MS + 2_000)
        .with_profile("submit_budget_ms", 25_000)
        // Nothing here is about its end.
        .with_profile("sla_ms", 300_000);
    let system = System::start("interrupted", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;

    // Each of these has a lock of its own and the worker for itself: what the table says of a reset holds for as
    // long as the first task of a workflow is not completed.
    let mut reserved = Vec::new();
    for (n, (_, column, _)) in table.cells().filter(|(row, ..)| *row == "reserve").enumerate() {
        reserved.push(play_reserve(&system, column, &format!("reserve-{n}")).await?);
    }

    // The worker stands still until the switch knows what to hold back. Each row has an account of its own,
    // whose lock holds up some rows and whose freeze one.
    system.worker.pause()?;
    let mut at_the_switch = Vec::new();
    for row in ["look", "submit", "callback", "cancel", "recall", "operator"] {
        system.open_account(row).await?;
        at_the_switch.push(accept(&system, &table, row).await?);
    }
    system.worker.resume()?;
    let at_the_switch = try_join_all(at_the_switch.iter().map(|cells| play(&system, cells)));
    let in_the_ledger = async {
        let mut came = Vec::new();
        // One after the other, since each blocked step takes a connection of the worker.
        for row in ["settle", "release"] {
            came.push(play_locked(&system, &table, row).await?);
        }
        anyhow::Ok(came)
    };
    let (at_the_switch, in_the_ledger) = join(at_the_switch, in_the_ledger).await;
    let came = at_the_switch?.into_iter().chain(in_the_ledger?).chain(reserved);
    table.compare(&came.flatten().collect())?;
    assert_eq!(system.audit().await?.open, 0);
    Ok(())
}

/// Makes the payments of one row, from an account of its name.
async fn accept(system: &System, table: &Table, row: &str) -> anyhow::Result<Vec<Cell>> {
    let cells = table.cells().filter(|(head, ..)| *head == row);
    try_join_all(cells.map(|(row, column, _)| async move {
        let payment = pay_from(system, row).await?;
        let held_back = match row {
            "look" => json!({"query": [{"delay_ms": HELD_MS}]}),
            "submit" => json!({"submit": [{"accept_hang_ms": HELD_MS}]}),
            "cancel" => json!({"cancel": [{"fault": "in_process", "times": "always"}]}),
            "recall" => json!({"recall": [{"fault": "in_process", "times": "always"}]}),
            _ => json!({}),
        };
        system.switch.set_behaviour(&payment.reference, held_back).await?;
        Ok(Cell { row: row.to_owned(), column: column.to_owned(), payment })
    }))
    .await
}

async fn pay_from(system: &System, account: &str) -> anyhow::Result<AcceptedPayment> {
    let mut body = payment_request("5.00");
    body["source_account"] = account.into();
    system.pay_with(&body).await
}

/// Interrupts the payments of one row at what they await at the switch, and sees how they end.
async fn play(system: &System, cells: &[Cell]) -> anyhow::Result<Came> {
    if cells.iter().any(|cell| cell.row == "recall") {
        // Frozen when all have their money: from a frozen account nothing is reserved.
        try_join_all(cells.iter().map(|cell| system.wait_for_state(&cell.payment.payment_id, "submitted")))
            .await?;
        let freeze = "UPDATE accounts SET status = 'frozen' WHERE account_id = 'recall'";
        sqlx::query(freeze).execute(&system.database.pool).await?;
    }
    try_join_all(cells.iter().map(|cell| bring(system, cell))).await?;
    let undone = try_join_all(cells.iter().map(|cell| interrupt(system, cell))).await?;
    see_all(system, cells, undone).await
}

/// One payment at its first step, the reservation, which waits for the lock of its account.
async fn play_reserve(system: &System, column: &str, account: &str) -> anyhow::Result<Came> {
    system.open_account(account).await?;
    let lock = lock_account(system, account).await?;
    let payment = pay_from(system, account).await?;
    let cell = Cell { row: "reserve".into(), column: column.to_owned(), payment };
    blocked(system, &lock, 1).await?;
    let undone = if column == "the customer cancels" {
        // It waits for the payment's row, which the blocked step holds.
        let let_go = async {
            until("the cancel awaits the payment", WITHIN, || async {
                let behind = behind(system, &lock).await?;
                Ok(behind.iter().any(|query| query.contains("FROM payments")).then_some(()))
            })
            .await?;
            Ok(lock.held.rollback().await?)
        };
        try_join(interrupt(system, &cell), let_go).await?.0
    } else {
        let undone = interrupt(system, &cell).await?;
        lock.held.rollback().await?;
        undone
    };
    see_all(system, &[cell], vec![undone]).await
}

/// The payments of one row at a step of our own ledger, which waits for the lock of the row's account.
async fn play_locked(system: &System, table: &Table, row: &str) -> anyhow::Result<Came> {
    system.open_account(row).await?;
    let cells = accept(system, table, row).await?;
    try_join_all(cells.iter().map(|cell| system.wait_for_state(&cell.payment.payment_id, "submitted")))
        .await?;
    let lock = lock_account(system, row).await?;
    let decision = if row == "settle" { "settle" } else { "reject" };
    try_join_all(cells.iter().map(|cell| system.switch.finish_transfer(&cell.payment.reference, decision)))
        .await?;
    blocked(system, &lock, cells.len()).await?;
    // A customer's cancel waits for the payment's row, which the blocked step holds.
    let (customers, operators): (Vec<_>, Vec<_>) =
        cells.iter().partition(|cell| cell.column == "the customer cancels");
    let by_customers = try_join_all(customers.into_iter().map(|cell| interrupt(system, cell)));
    let by_operators = async {
        let undone = try_join_all(operators.into_iter().map(|cell| interrupt(system, cell))).await;
        lock.held.rollback().await?;
        undone
    };
    let (mut by_customers, by_operators) = try_join(by_customers, by_operators).await?;
    by_customers.extend(by_operators);
    see_all(system, &cells, by_customers).await
}

async fn see_all(
    system: &System,
    cells: &[Cell],
    undone: Vec<(String, Option<String>)>,
) -> anyhow::Result<Came> {
    let undone: BTreeMap<_, _> = undone.into_iter().collect();
    try_join_all(cells.iter().map(|cell| let_go(system, cell))).await?;
    let came = try_join_all(cells.iter().map(|cell| see(system, cell, &undone[&cell.column]))).await?;
    Ok(came.into_iter().collect())
}

/// Brings the payment to what its row says, and waits until it awaits that.
async fn bring(system: &System, cell: &Cell) -> anyhow::Result<()> {
    let (id, reference) = (cell.payment.payment_id.as_str(), cell.payment.reference.as_str());
    let asked = |operation: &'static str| {
        until("the switch is asked", WITHIN, move || async move {
            Ok((system.switch.request_count(reference, operation).await? > 0).then_some(()))
        })
    };
    match cell.row.as_str() {
        "look" => return asked("query").await,
        "submit" => {
            return until("the switch has the transfer", WITHIN, || async {
                Ok(system.switch.transfer_status(reference).await?.map(|_| ()))
            })
            .await;
        }
        _ => system.wait_for_state(id, "submitted").await?,
    }
    match cell.row.as_str() {
        "callback" => system.wait_for_event(id, EventType::TimerStarted).await.map(drop),
        "cancel" => {
            system.post_callback(&TestCallback::failure(reference, AMOUNT_MINOR)).await?;
            asked("cancel").await
        }
        "recall" => {
            system.switch.finish_transfer(reference, "settle").await?;
            asked("recall").await
        }
        "operator" => {
            system.post_callback(&TestCallback::success(reference, AMOUNT_MINOR + 1)).await?;
            system.wait_for_state(id, "needs_operator").await
        }
        other => bail!("no way leads to {other}"),
    }
}

/// The lock of an account, for which reserve, settle and release wait.
struct Lock {
    held: Transaction<'static, Postgres>,
    /// Of the session that holds it.
    pid: i32,
}

async fn lock_account(system: &System, account: &str) -> anyhow::Result<Lock> {
    let mut held = system.database.pool.begin().await?;
    let pid = sqlx::query_scalar("SELECT pg_backend_pid() FROM accounts WHERE account_id = $1 FOR UPDATE")
        .bind(account)
        .fetch_one(&mut *held)
        .await?;
    Ok(Lock { held, pid })
}

/// Waits until so many steps wait for the account.
async fn blocked(system: &System, lock: &Lock, steps: usize) -> anyhow::Result<()> {
    until(&format!("{steps} payments await their account"), WITHIN, || async {
        let behind = behind(system, lock).await?;
        let is_step = |query: &&String| query.contains("accounts") || query.contains("INTO journal");
        Ok((behind.iter().filter(is_step).count() >= steps).then_some(()))
    })
    .await
}

/// What the sessions are at that wait behind the lock, or behind each other.
async fn behind(system: &System, lock: &Lock) -> anyhow::Result<Vec<String>> {
    let queries = sqlx::query_scalar(
        "WITH RECURSIVE behind (pid) AS (
             SELECT $1
             UNION
             SELECT a.pid FROM pg_stat_activity a JOIN behind b ON b.pid = ANY(pg_blocking_pids(a.pid))
             WHERE a.datname = current_database())
         SELECT a.query FROM behind JOIN pg_stat_activity a USING (pid) WHERE pid <> $1",
    );
    Ok(queries.bind(lock.pid).fetch_all(&system.database.pool).await?)
}

/// Interrupts; says what could not be done.
async fn interrupt(system: &System, cell: &Cell) -> anyhow::Result<(String, Option<String>)> {
    let id = cell.payment.payment_id.as_str();
    let mut not_done = None;
    match cell.column.as_str() {
        "the customer cancels" => {
            // 503 when the row was locked for too long; 409 when it ended while the cancel waited for it.
            until("the customer's cancel is taken", WITHIN, || async {
                let answer = system.cancel(id).await?.status().as_u16();
                Ok(matches!(answer, 202 | 409).then_some(()))
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
            system
                .workflow(id)
                .await?
                .terminate(WorkflowTerminateOptions::default())
                .await
                .context(id.to_owned())?;
        }
        "reset to its first task" => not_done = reset(system, id, ResetTo::First).await,
        "reset to its last task" => not_done = reset(system, id, ResetTo::Last).await,
        other => bail!("nothing is known of column {other}"),
    }
    Ok((cell.column.clone(), not_done))
}

async fn reset(system: &System, id: &str, to: ResetTo) -> Option<String> {
    system.reset(id, to).await.err().map(|error| error.to_string())
}

/// Takes away what kept the payment waiting. A reset to the last task may leave it waiting for its callback, and so
/// does one that could not be done.
async fn let_go(system: &System, cell: &Cell) -> anyhow::Result<()> {
    let reference = cell.payment.reference.as_str();
    match (cell.row.as_str(), cell.column.as_str()) {
        ("cancel" | "recall", _) => system.switch.set_behaviour(reference, json!({})).await,
        // It asks to cancel, and the transfer is pending. A reset keeps the signals: that run stands again.
        ("operator", "the workflow is terminated") => Ok(()),
        ("operator", _) => system.switch.finish_transfer(reference, "settle").await,
        ("reserve", "reset to its first task")
        | ("reserve" | "look" | "submit" | "callback", "reset to its last task") => {
            until("the switch has settled or cancelled", WITHIN, || async {
                let status = system.switch.transfer_status(reference).await?;
                if status.as_deref() == Some("PENDING") {
                    // It may be cancelled in this moment.
                    let _ = system.switch.finish_transfer(reference, "settle").await;
                }
                let ended = system.state(&cell.payment.payment_id).await? == "failed";
                Ok((ended || matches!(status.as_deref(), Some("SETTLED" | "CANCELLED"))).then_some(()))
            })
            .await
        }
        _ => Ok(()),
    }
}

/// How the payment ended, and how many submits the switch received.
async fn see(
    system: &System,
    cell: &Cell,
    not_done: &Option<String>,
) -> anyhow::Result<((String, String), String)> {
    let id = cell.payment.payment_id.as_str();
    let ended = until("the payment has ended", WITHIN, || async {
        let state = system.state(id).await?;
        let ended = matches!(state.as_str(), "settled" | "rejected" | "failed" | "timed_out" | "cancelled");
        Ok(ended.then_some(state))
    })
    .await;
    let came = match ended {
        Ok(end) => {
            let sent = system.switch.request_count(&cell.payment.reference, "submit").await?;
            let not_done = not_done.iter().map(|why| format!("({why}) ")).collect::<String>();
            format!("{not_done}{end} {sent}")
        }
        Err(error) => format!("{error}: {}", system.timeline(id).await?.join(", ")),
    };
    Ok(((cell.row.clone(), cell.column.clone()), came))
}
