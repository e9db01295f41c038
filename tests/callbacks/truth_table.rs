//! The truth table of callbacks: the effect of each callback on a payment in each state (R18, R21, R21b, and the duplicates of
//! R17). One payment per cell, all in one system.
//!
//! A cell of `truth_table.txt` has, in this order: the HTTP statuses; the state that the payment reaches without further
//! callbacks; after `>` the state it reaches when the transfer then ends with a true callback; after each `+` the kind of an
//! opened exception. Callbacks that must be ignored (unknown payment, other switch, other signature) report SUCCESS for a
//! transfer that is then rejected, so that accepting one changes the result.

use std::time::Duration;

use anyhow::bail;
use futures::future::try_join_all;
use serde_json::{Value, json};
use sqlx::Row as _;
use testkit::system::{AcceptedPayment, OTHER_SECRET, SWITCH_SECRET, payment_request};
use testkit::wait::until;
use testkit::{System, SystemOptions, TestCallback};
use uuid::Uuid;

use crate::golden_table::{GoldenTable, Results};

/// Delay of a held request at the switch, so that callbacks arrive before its answer.
const HELD_MS: u64 = 10_000;
/// Amount of every payment, in minor units.
const AMOUNT_MINOR: i64 = 500;
/// Time limit for one step.
const WITHIN: Duration = Duration::from_secs(40);

/// The payment of one table cell.
struct Cell {
    row: String,
    column: String,
    expected: String,
    payment: AcceptedPayment,
    /// HTTP statuses of the callbacks.
    statuses: Vec<u16>,
    /// The callbacks' events, as `switch:event_id`.
    events: Vec<String>,
    /// Why the cell's result is not meaningful; `None` if it is.
    invalid: Option<String>,
}

#[tokio::test]
async fn r17_r18_r21_r21b_every_callback_in_every_state_acts_as_listed() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    let table = GoldenTable::parse(include_str!("truth_table.txt"))?;
    // Submits by ordinary activities: the query before the first one holds a payment in the state `reserved`.
    let options = SystemOptions { commits_may_be_lost: true, ..SystemOptions::default() }
        .with_profile("attempt_timeout_ms", HELD_MS + 3_000)
        .with_profile("submit_budget_ms", 60_000)
        .with_profile("submit_deadline_ms", 90_000)
        // What a callback does by itself is the subject, and the end of the SLA is not.
        .with_profile("confirm_by_query", "never")
        .with_profile("sla_ms", 300_000)
        // A switch without query and cancel: without a callback within the SLA the payment needs an operator.
        .with_other_switch(&[
            ("strategy", json!("reference")),
            ("has_query", json!(false)),
            ("can_cancel", json!(false)),
            ("sla_ms", json!(200)),
        ]);
    let mut system = System::start("truth-table", options).await?;
    // The test ends the transfers and sends the callbacks, not the switch.
    let passive = |faults: Value| {
        let mut behaviour = json!({"outcome": "hold", "callback": {"lose": true}});
        for (operation, fault) in faults.as_object().into_iter().flatten() {
            behaviour[operation] = fault.clone();
        }
        behaviour
    };
    system.switch.set_default_behaviour(passive(json!({}))).await?;

    system.worker.kill().await?;
    let mut cells = Vec::new();
    cells.extend(create_cells(&system, &table, "accepted").await?);
    send_callbacks(&system, &mut cells).await?;
    system.worker.restart().await?;

    for row in ["submitted", "cancelling", "needs_operator", "settled", "released"] {
        let mut row_cells = create_cells(&system, &table, row).await?;
        send_callbacks(&system, &mut row_cells).await?;
        cells.extend(row_cells);
    }
    // The worker is paused while the switch holds a request, so that callbacks cannot arrive too late.
    for (row, held_request) in [
        ("reserved", json!({"query": [{"delay_ms": HELD_MS}]})),
        ("submitting", json!({"submit": [{"accept_hang_ms": HELD_MS}]})),
    ] {
        system.switch.set_default_behaviour(passive(held_request)).await?;
        let mut row_cells = create_cells(&system, &table, row).await?;
        system.worker.pause()?;
        send_callbacks(&system, &mut row_cells).await?;
        system.worker.resume()?;
        cells.extend(row_cells);
    }
    system.switch.set_default_behaviour(passive(json!({}))).await?;

    let results = try_join_all(cells.iter().map(|cell| result(&system, cell))).await?;
    let results: Results = results.into_iter().collect();
    table.compare(&results)?;
    let ended_in = |end: &str| results.iter().filter(|(_, cell)| end_of(cell) == end).count();
    let audit = system.audit().await?;
    assert_eq!((audit.debited, audit.open), (ended_in("settled"), ended_in("needs_operator")));
    Ok(())
}

/// Makes the payments of one table row and drives them to the state of the row.
async fn create_cells(system: &System, table: &GoldenTable, row: &str) -> anyhow::Result<Vec<Cell>> {
    let cells = table.cells().filter(|(head, ..)| *head == row);
    try_join_all(cells.map(|(row, column, expected)| async move {
        let mut body = payment_request("5.00");
        if row == "needs_operator" {
            body["destination_account"] = "YY-BOB".into();
        }
        let payment = system.pay_with(&body).await?;
        drive(system, row, &payment).await?;
        let (row, column, expected) = (row.to_owned(), column.to_owned(), expected.to_owned());
        Ok(Cell { row, column, expected, payment, statuses: vec![], events: vec![], invalid: None })
    }))
    .await
}

async fn drive(system: &System, row: &str, payment: &AcceptedPayment) -> anyhow::Result<()> {
    let (id, reference) = (payment.payment_id.as_str(), payment.reference.as_str());
    match row {
        "accepted" => return Ok(()),
        "reserved" => {
            return until("the switch receives the query before the submit", WITHIN, || async {
                Ok((system.switch.request_count(reference, "query").await? > 0).then_some(()))
            })
            .await;
        }
        "submitting" => return wait_until_accepted(system, reference).await,
        "needs_operator" => return system.wait_for_state(id, "needs_operator").await,
        _ => system.wait_for_state(id, "submitted").await?,
    }
    match row {
        "submitted" => Ok(()),
        "cancelling" => {
            // Cancel and query do not decide, so that only the callback can.
            let undecided = json!({
                "cancel": [{"fault": "in_process", "times": "always"}],
                "query": [{"fault": "error_500", "times": "always"}],
            });
            system.switch.set_behaviour(reference, undecided).await?;
            system.cancel(id).await?.error_for_status()?;
            system.wait_for_state(id, "cancelling").await
        }
        "settled" => {
            system.switch.finish_transfer(reference, "settle").await?;
            system.post_callback(&TestCallback::success(reference, AMOUNT_MINOR)).await?;
            system.wait_for_state(id, "settled").await
        }
        "released" => {
            system.cancel(id).await?.error_for_status()?;
            system.wait_for_state(id, "cancelled").await
        }
        other => bail!("unknown row {other}"),
    }
}

async fn wait_until_accepted(system: &System, reference: &str) -> anyhow::Result<()> {
    until("the switch has accepted the transfer", WITHIN, || async {
        Ok(system.switch.transfer_status(reference).await?.map(|_| ()))
    })
    .await
}

async fn send_callbacks(system: &System, cells: &mut [Cell]) -> anyhow::Result<()> {
    try_join_all(cells.iter_mut().map(|cell| send(system, cell))).await?;
    Ok(())
}

/// Sends the callbacks that the cell's column names. For a pending transfer the test first makes SUCCESS and FAILURE
/// true.
async fn send(system: &System, cell: &mut Cell) -> anyhow::Result<()> {
    let reference = cell.payment.reference.as_str();
    let is_pending = system.switch.transfer_status(reference).await?.as_deref() == Some("PENDING");
    let own = TestCallback::success(reference, AMOUNT_MINOR);
    let own = if cell.row == "needs_operator" { own.from_other() } else { own };
    let callbacks = match cell.column.as_str() {
        "SUCCESS" => vec![own],
        "duplicate SUCCESS" => {
            let new_event =
                TestCallback { event_id: format!("evt-{}", Uuid::new_v4().simple()), ..own.clone() };
            vec![own.clone(), own, new_event]
        }
        "FAILURE" => vec![TestCallback { status: "FAILURE", ..own }],
        "SUCCESS with another amount" => vec![TestCallback { amount_minor: AMOUNT_MINOR + 1, ..own }],
        "unknown payment" => {
            let unknown = &Uuid::new_v4().simple().to_string()[..24];
            vec![TestCallback { reference: format!("tx_{unknown}:submit"), ..own }]
        }
        "another switch" if own.switch == "other" => {
            vec![TestCallback { switch: "mock", secret: SWITCH_SECRET, ..own }]
        }
        "another switch" => vec![own.from_other()],
        "another switch's signature" => {
            let other_secret = if own.switch == "other" { SWITCH_SECRET } else { OTHER_SECRET };
            vec![TestCallback { secret: other_secret, ..own }]
        }
        other => bail!("unknown column {other}"),
    };
    match cell.column.as_str() {
        "SUCCESS" | "duplicate SUCCESS" if is_pending => {
            system.switch.finish_transfer(reference, "settle").await?
        }
        "FAILURE" if is_pending => system.switch.finish_transfer(reference, "reject").await?,
        _ => {}
    }
    for callback in callbacks {
        cell.statuses.push(system.post_callback(&callback).await?);
        cell.events.push(format!("{}:{}", callback.switch, callback.event_id));
    }
    cell.invalid = check_timing(system, cell).await?;
    if (cell.row.as_str(), cell.column.as_str()) == ("cancelling", "FAILURE") {
        system.switch.set_behaviour(reference, json!({})).await?;
    }
    Ok(())
}

/// An explanation if the held request was answered before the callback arrived: the result is then not meaningful.
async fn check_timing(system: &System, cell: &Cell) -> anyhow::Result<Option<String>> {
    let row = sqlx::query(
        "SELECT p.attempts, (SELECT count(*) FROM submissions s WHERE s.payment_id = p.payment_id AND s.outcome IS NOT NULL)
         FROM payments p WHERE p.payment_id = $1",
    )
    .bind(&cell.payment.payment_id)
    .fetch_one(&system.database.pool)
    .await?;
    let is_late = match cell.row.as_str() {
        "accepted" | "reserved" => row.get::<i32, _>(0) != 0,
        "submitting" => row.get::<i64, _>(1) != 0,
        _ => false,
    };
    Ok(is_late.then(|| format!("too late, the payment is no longer {}", cell.row)))
}

/// The result of a cell, in the notation of the table.
async fn result(system: &System, cell: &Cell) -> anyhow::Result<((String, String), String)> {
    let result = match follow(system, cell).await {
        Ok(states) => {
            let statuses = cell.statuses.iter().map(|status| format!("{status} ")).collect::<String>();
            let exceptions = exceptions(system, cell).await?;
            let exceptions = exceptions.iter().map(|kind| format!(" +{kind}")).collect::<String>();
            let invalid = cell.invalid.iter().map(|text| format!(" ({text})")).collect::<String>();
            format!("{statuses}{states}{exceptions}{invalid}")
        }
        Err(error) => {
            format!("{}: {}", error.root_cause(), system.timeline(&cell.payment.payment_id).await?.join(", "))
        }
    };
    Ok(((cell.row.clone(), cell.column.clone()), result))
}

/// Waits for the states of the cell; returns the states that the payment reached.
async fn follow(system: &System, cell: &Cell) -> anyhow::Result<String> {
    let id = cell.payment.payment_id.as_str();
    let (first, then) = match states_of(&cell.expected).split_once('>') {
        Some((first, then)) => (first, Some(then)),
        None => (states_of(&cell.expected), None),
    };
    if !first.is_empty() {
        system.wait_for_state(id, first).await?;
    }
    if let Some(then) = then {
        end_wait_until_accepted(system, cell, then).await?;
        system.wait_for_state(id, then).await?;
    }
    // The final state must be reached after all stored messages are delivered.
    system.wait_until_inbox_delivered(id).await?;
    let last = system.state(id).await?;
    Ok(if then.is_some() { format!("{first}>{last}") } else { last })
}

/// Ends the transfer at the switch as the expected final state requires, and sends the true callback.
async fn end_wait_until_accepted(system: &System, cell: &Cell, end: &str) -> anyhow::Result<()> {
    let reference = cell.payment.reference.as_str();
    wait_until_accepted(system, reference).await?;
    let callback = if end == "settled" {
        system.switch.finish_transfer(reference, "settle").await?;
        TestCallback::success(reference, AMOUNT_MINOR)
    } else {
        system.switch.finish_transfer(reference, "reject").await?;
        TestCallback::failure(reference, AMOUNT_MINOR)
    };
    let callback = if cell.row == "needs_operator" { callback.from_other() } else { callback };
    let status = system.post_callback(&callback).await?;
    if status != 200 {
        bail!("the true callback was answered {status}");
    }
    if cell.row == "cancelling" {
        system.switch.set_behaviour(reference, json!({})).await?;
    }
    Ok(())
}

/// Exceptions of the payment or of the cell's events.
async fn exceptions(system: &System, cell: &Cell) -> anyhow::Result<Vec<String>> {
    let kinds = sqlx::query_scalar(
        "SELECT kind FROM exceptions WHERE payment_id = $1 OR origin = ANY($2) ORDER BY kind",
    )
    .bind(&cell.payment.payment_id)
    .bind(&cell.events)
    .fetch_all(&system.database.pool)
    .await?;
    Ok(kinds)
}

/// The states in a cell.
fn states_of(cell: &str) -> &str {
    let states = cell.split(' ').find(|word| !word.starts_with('+') && word.parse::<u16>().is_err());
    states.unwrap_or_default()
}

/// The final state in a cell.
fn end_of(cell: &str) -> &str {
    states_of(cell).rsplit('>').next().unwrap_or_default()
}
