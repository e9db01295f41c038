//! The truth table of callbacks: what each callback does to a payment in each state (R18, R21, R21b, and the
//! duplicates of R17). One payment for each cell, all in one system, at once.
//!
//! A cell of `truth_table.txt` says, in this order: the HTTP answers; the state the payment comes to by
//! itself; after `>` the state it comes to when the switch then ends the transfer and says so; after each `+`
//! an exception that is opened. A callback that must not count (unknown payment, other switch, other
//! signature) says SUCCESS of a transfer which the switch then rejects, so that believing it shows.

use std::time::Duration;

use anyhow::bail;
use futures::future::try_join_all;
use serde_json::{Value, json};
use sqlx::Row as _;
use testkit::system::{AcceptedPayment, OTHER_SECRET, SWITCH_SECRET, payment_request};
use testkit::wait::until;
use testkit::{System, SystemOptions, TestCallback};
use uuid::Uuid;

use crate::table::Table;

/// For how long the switch holds a request back, so that callbacks come before it is answered.
const HELD_MS: u64 = 10_000;
/// Amount of every payment, in minor units.
const AMOUNT_MINOR: i64 = 500;
/// How long a step may take.
const WITHIN: Duration = Duration::from_secs(40);

/// The payment of one cell.
struct Cell {
    row: String,
    column: String,
    must: String,
    payment: AcceptedPayment,
    /// HTTP answers, and the events they answered.
    answers: Vec<u16>,
    events: Vec<String>,
    /// What went wrong with the cell itself.
    trouble: Option<String>,
}

#[tokio::test]
async fn r17_r18_r21_r21b_every_callback_in_every_state() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    let table = Table::read(include_str!("truth_table.txt"))?;
    let options = SystemOptions::default()
        .with_profile("attempt_timeout_ms", HELD_MS + 3_000)
        .with_profile("submit_budget_ms", 60_000)
        .with_profile("submit_deadline_ms", 90_000)
        // Nothing here is about its end.
        .with_profile("sla_ms", 300_000)
        // A switch that can be asked nothing: without a callback within the SLA a person must look.
        .with_other_switch(&[
            ("strategy", json!("reference")),
            ("has_query", json!(false)),
            ("can_cancel", json!(false)),
            ("sla_ms", json!(200)),
        ]);
    let mut system = System::start("truth-table", options).await?;
    // The switch itself decides nothing and says nothing: the test does.
    let silent = |faults: Value| {
        let mut behaviour = json!({"outcome": "hold", "callback": {"lose": true}});
        for (operation, fault) in faults.as_object().into_iter().flatten() {
            behaviour[operation] = fault.clone();
        }
        behaviour
    };
    system.switch.set_default_behaviour(silent(json!({}))).await?;

    system.worker.kill().await?;
    let mut cells = Vec::new();
    cells.extend(bring(&system, &table, "accepted").await?);
    tell_all(&system, &mut cells).await?;
    system.worker.restart().await?;

    for row in ["submitted", "cancelling", "needs_operator", "settled", "released"] {
        let mut others = bring(&system, &table, row).await?;
        tell_all(&system, &mut others).await?;
        cells.extend(others);
    }
    // While the switch holds a request back the worker is stopped, so that callbacks cannot come too late.
    for (row, held_back) in [
        ("reserved", json!({"query": [{"delay_ms": HELD_MS}]})),
        ("submitting", json!({"submit": [{"accept_hang_ms": HELD_MS}]})),
    ] {
        system.switch.set_default_behaviour(silent(held_back)).await?;
        let mut others = bring(&system, &table, row).await?;
        system.worker.pause()?;
        tell_all(&system, &mut others).await?;
        system.worker.resume()?;
        cells.extend(others);
    }
    system.switch.set_default_behaviour(silent(json!({}))).await?;

    let came = try_join_all(cells.iter().map(|cell| see(&system, cell))).await?;
    table.compare(&came.iter().cloned().collect())?;
    let ended_in = |end: &str| came.iter().filter(|(_, cell)| end_of(cell) == end).count();
    let audit = system.audit().await?;
    assert_eq!((audit.debited, audit.open), (ended_in("settled"), ended_in("needs_operator")));
    Ok(())
}

/// Makes the payments of one row and brings them into its state.
async fn bring(system: &System, table: &Table, row: &str) -> anyhow::Result<Vec<Cell>> {
    let cells = table.cells().filter(|(head, ..)| *head == row);
    try_join_all(cells.map(|(row, column, must)| async move {
        let mut body = payment_request("5.00");
        if row == "needs_operator" {
            body["destination_account"] = "YY-BOB".into();
        }
        let payment = system.pay_with(&body).await?;
        bring_one(system, row, &payment).await?;
        let (row, column, must) = (row.to_owned(), column.to_owned(), must.to_owned());
        Ok(Cell { row, column, must, payment, answers: vec![], events: vec![], trouble: None })
    }))
    .await
}

async fn bring_one(system: &System, row: &str, payment: &AcceptedPayment) -> anyhow::Result<()> {
    let (id, reference) = (payment.payment_id.as_str(), payment.reference.as_str());
    match row {
        "accepted" => return Ok(()),
        "reserved" => {
            return until("the look before the submit has begun", WITHIN, || async {
                Ok((system.switch.request_count(reference, "query").await? > 0).then_some(()))
            })
            .await;
        }
        "submitting" => return at_the_switch(system, reference).await,
        "needs_operator" => return system.wait_for_state(id, "needs_operator").await,
        _ => system.wait_for_state(id, "submitted").await?,
    }
    match row {
        "submitted" => Ok(()),
        "cancelling" => {
            // Neither our cancel nor the look beside it decides anything: only the callback can.
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
        other => bail!("no way leads to {other}"),
    }
}

async fn at_the_switch(system: &System, reference: &str) -> anyhow::Result<()> {
    until("the switch has the transfer", WITHIN, || async {
        Ok(system.switch.transfer_status(reference).await?.map(|_| ()))
    })
    .await
}

async fn tell_all(system: &System, cells: &mut [Cell]) -> anyhow::Result<()> {
    try_join_all(cells.iter_mut().map(|cell| tell(system, cell))).await?;
    Ok(())
}

/// Lets the switch say what the column says. What it claims of its own transfer is true where there is one.
async fn tell(system: &System, cell: &mut Cell) -> anyhow::Result<()> {
    let reference = cell.payment.reference.as_str();
    let pending = system.switch.transfer_status(reference).await?.as_deref() == Some("PENDING");
    let truth = TestCallback::success(reference, AMOUNT_MINOR);
    let truth = if cell.row == "needs_operator" { truth.from_other() } else { truth };
    let callbacks = match cell.column.as_str() {
        "SUCCESS" => vec![truth],
        "duplicate SUCCESS" => {
            let again =
                TestCallback { event_id: format!("evt-{}", Uuid::new_v4().simple()), ..truth.clone() };
            vec![truth.clone(), truth, again]
        }
        "FAILURE" => vec![TestCallback { status: "FAILURE", ..truth }],
        "SUCCESS of other amount" => vec![TestCallback { amount_minor: AMOUNT_MINOR + 1, ..truth }],
        "unknown payment" => {
            let nobodys = &Uuid::new_v4().simple().to_string()[..24];
            vec![TestCallback { reference: format!("tx_{nobodys}:submit"), ..truth }]
        }
        "other switch" if truth.switch == "other" => {
            vec![TestCallback { switch: "mock", secret: SWITCH_SECRET, ..truth }]
        }
        "other switch" => vec![truth.from_other()],
        "other switch's signature" => {
            let others = if truth.switch == "other" { SWITCH_SECRET } else { OTHER_SECRET };
            vec![TestCallback { secret: others, ..truth }]
        }
        other => bail!("nothing is known of column {other}"),
    };
    match cell.column.as_str() {
        "SUCCESS" | "duplicate SUCCESS" if pending => {
            system.switch.finish_transfer(reference, "settle").await?
        }
        "FAILURE" if pending => system.switch.finish_transfer(reference, "reject").await?,
        _ => {}
    }
    for callback in callbacks {
        cell.answers.push(system.post_callback(&callback).await?);
        cell.events.push(format!("{}:{}", callback.switch, callback.event_id));
    }
    cell.trouble = too_late(system, cell).await?;
    if (cell.row.as_str(), cell.column.as_str()) == ("cancelling", "FAILURE") {
        system.switch.set_behaviour(reference, json!({})).await?;
    }
    Ok(())
}

/// Says so if the request that was held back was answered before the callback came: the cell then shows
/// nothing.
async fn too_late(system: &System, cell: &Cell) -> anyhow::Result<Option<String>> {
    let row = sqlx::query(
        "SELECT p.attempts, (SELECT count(*) FROM submissions s WHERE s.payment_id = p.payment_id AND s.outcome IS NOT NULL)
         FROM payments p WHERE p.payment_id = $1",
    )
    .bind(&cell.payment.payment_id)
    .fetch_one(&system.database.pool)
    .await?;
    let late = match cell.row.as_str() {
        "accepted" | "reserved" => row.get::<i32, _>(0) != 0,
        "submitting" => row.get::<i64, _>(1) != 0,
        _ => false,
    };
    Ok(late.then(|| format!("too late, the payment is no longer {}", cell.row)))
}

/// Follows the payment the way its cell says, and says what came of it in the same words.
async fn see(system: &System, cell: &Cell) -> anyhow::Result<((String, String), String)> {
    let came = match follow(system, cell).await {
        Ok(states) => {
            let answers = cell.answers.iter().map(|answer| format!("{answer} ")).collect::<String>();
            let exceptions = exceptions(system, cell).await?;
            let exceptions = exceptions.iter().map(|kind| format!(" +{kind}")).collect::<String>();
            let trouble = cell.trouble.iter().map(|text| format!(" ({text})")).collect::<String>();
            format!("{answers}{states}{exceptions}{trouble}")
        }
        Err(error) => {
            format!("{}: {}", error.root_cause(), system.timeline(&cell.payment.payment_id).await?.join(", "))
        }
    };
    Ok(((cell.row.clone(), cell.column.clone()), came))
}

async fn follow(system: &System, cell: &Cell) -> anyhow::Result<String> {
    let id = cell.payment.payment_id.as_str();
    let (by_itself, then) = match states_of(&cell.must).split_once('>') {
        Some((by_itself, then)) => (by_itself, Some(then)),
        None => (states_of(&cell.must), None),
    };
    if !by_itself.is_empty() {
        system.wait_for_state(id, by_itself).await?;
    }
    if let Some(then) = then {
        end_at_the_switch(system, cell, then).await?;
        system.wait_for_state(id, then).await?;
    }
    // What was stored for it is heard, and has moved nothing.
    system.wait_until_inbox_delivered(id).await?;
    let last = system.state(id).await?;
    Ok(if then.is_some() { format!("{by_itself}>{last}") } else { last })
}

/// Ends the transfer at the switch, as the cell's end needs it, and lets the switch say so.
async fn end_at_the_switch(system: &System, cell: &Cell, end: &str) -> anyhow::Result<()> {
    let reference = cell.payment.reference.as_str();
    at_the_switch(system, reference).await?;
    let truth = if end == "settled" {
        system.switch.finish_transfer(reference, "settle").await?;
        TestCallback::success(reference, AMOUNT_MINOR)
    } else {
        system.switch.finish_transfer(reference, "reject").await?;
        TestCallback::failure(reference, AMOUNT_MINOR)
    };
    let truth = if cell.row == "needs_operator" { truth.from_other() } else { truth };
    let answer = system.post_callback(&truth).await?;
    if answer != 200 {
        bail!("the true callback was answered {answer}");
    }
    if cell.row == "cancelling" {
        system.switch.set_behaviour(reference, json!({})).await?;
    }
    Ok(())
}

/// Exceptions opened for the payment or by the cell's events.
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

/// The word of a cell that says the states.
fn states_of(cell: &str) -> &str {
    let states = cell.split(' ').find(|word| !word.starts_with('+') && word.parse::<u16>().is_err());
    states.unwrap_or_default()
}

/// The state a cell ends in.
fn end_of(cell: &str) -> &str {
    states_of(cell).rsplit('>').next().unwrap_or_default()
}
