//! A payment's whole picture for people: what is wrong first, then what it is, then who says what.

use jiff::Timestamp;
use payment_ledger::reads::explain::PaymentExplanation;
use payment_protocol::PaymentState;

use super::super::exceptions;
use crate::api::Step;
use crate::explain::{Holds, Picture};
use crate::out::{Out, OutError, plain};
use crate::table::{Align, Table};
use crate::watch::Line;
use crate::{age, document};

use Align::{Left, Right};

pub(super) fn print(picture: &Picture, out: &mut Out<'_>) -> Result<(), OutError> {
    for violated in picture.violated() {
        out.line(format_args!("VIOLATED {}: {}", violated.number, plain(&violated.detail)))?;
    }
    if picture.violated().next().is_some() {
        out.line("")?;
    }
    let ledger = &picture.ledger;
    out.line(facts(picture))?;
    section(out, "attempts at the switch", &attempts(ledger))?;
    section(out, "operations, by key", &operations(ledger))?;
    section(out, "journal", &journal(ledger))?;
    section(out, "callbacks", &callbacks(ledger))?;
    section(out, "inbox", &inbox(ledger))?;
    section(out, "decisions", &decisions(ledger))?;
    section(out, "exceptions", &exceptions::table(&ledger.exceptions, picture.read_at))?;
    section(out, "alerts", &alerts(ledger))?;
    section(out, "told the customer", &notifications(ledger))?;
    section(out, "invariants", &invariants(picture))?;
    out.line("\ntimeline")?;
    for entry in &ledger.timeline {
        let step = Step { status: entry.state.clone(), detail: entry.detail.clone(), at: entry.happened_at };
        out.line(Line { since: ledger.payment.view.accepted_at, step: &step })?;
    }
    Ok(())
}

fn section<const N: usize>(out: &mut Out<'_>, name: &str, table: &Table<N>) -> Result<(), OutError> {
    match table.is_empty() {
        true => out.line(format_args!("\n{name}: none")),
        false => out.line(format_args!("\n{name}\n{table}")),
    }
}

fn facts(picture: &Picture) -> Table<2> {
    let PaymentExplanation { payment: row, hold, .. } = &picture.ledger;
    let view = &row.view;
    let mut table = Table::new([("", Left), ("", Left)]);
    table.row(["payment", &view.payment_id]);
    table.row(["transaction", &view.tx_id]);
    table.row(["state", &state(picture)]);
    let mut fact = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            table.row([name, value]);
        }
    };
    fact("may be decided", standing(view.state).then(|| allowed(picture)).as_deref());
    fact("reason", view.reason.as_deref());
    fact("cause", row.cause.as_ref().map(ToString::to_string).as_deref());
    fact("tenant, client", Some(&format!("{}, {}", row.tenant_id, row.client_id)));
    fact("amount", Some(&document::money(view.amount_minor, &view.currency)));
    fact("from", Some(&view.source_account));
    fact("to", Some(&view.destination_account));
    fact("end-to-end id", view.end_to_end_id.as_deref());
    fact("accepted at", Some(&view.accepted_at.to_string()));
    fact("ended at", view.ended_at.map(|at| at.to_string()).as_deref());
    let hold = hold.as_ref().map(|hold| {
        format!(
            "{} in {}: {}",
            document::money(hold.amount_minor, &view.currency),
            hold.account_id,
            hold.status
        )
    });
    fact("hold", Some(hold.as_deref().unwrap_or("none")));
    fact("switch", Some(&format!("{}, strategy {}", view.switch, row.profile.strategy)));
    let final_status = row.final_status.as_ref().map(|final_status| {
        format!("{final_status}, by {}", row.final_status_source.as_deref().unwrap_or("whom is not known"))
    });
    fact("its first answer", Some(final_status.as_deref().unwrap_or("none yet")));
    fact(
        "it says now",
        Some(&match &picture.switch {
            Ok(says) => says.words(),
            Err(unread) => format!("not read: {unread}"),
        }),
    );
    fact("workflow", Some(&view.workflow_id));
    fact("first run", row.run_id.as_deref());
    fact("taken up again", (row.resume_count > 0).then(|| format!("{} times", row.resume_count)).as_deref());
    fact("Temporal says", Some(&workflow(picture)));
    table
}

fn standing(state: PaymentState) -> bool {
    state == PaymentState::NeedsOperator
}

/// The state, why, and for how long.
fn state(picture: &Picture) -> String {
    let view = &picture.ledger.payment.view;
    let reason = view.operator_reason.as_deref().filter(|_| standing(view.state));
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    if view.state.end().is_some() {
        return view.state.to_string();
    }
    let cancelling =
        picture.ledger.payment.cancelling_since.filter(|_| view.state == PaymentState::Cancelling);
    let since = view.needs_operator_since.or(cancelling).unwrap_or(view.updated_at);
    format!("{}{reason}, for {}", view.state, since_then(since, picture.read_at))
}

fn since_then(since: Timestamp, now: Timestamp) -> String {
    age::show(now.duration_since(since).as_secs())
}

fn allowed(picture: &Picture) -> String {
    let view = &picture.ledger.payment.view;
    match view.allowed_actions.as_slice() {
        [] => "nothing: it is tried again by itself".into(),
        actions => format!(
            "{}: payctl decide {} ACTION --by NAME --reason TEXT [--evidence TEXT]",
            document::actions(actions),
            view.payment_id
        ),
    }
}

fn workflow(picture: &Picture) -> String {
    match &picture.workflow {
        Ok(says) => {
            let told = match (&says.state, &says.not_told) {
                (Some(state), _) => format!("it tells: {state}"),
                (None, Some(detail)) => format!("it does not tell its state: {detail}"),
                (None, None) => "it does not tell its state".into(),
            };
            format!("{}, run {}; {told}", says.status, says.run_id)
        }
        Err(unread) => format!("not read: {unread}"),
    }
}

fn attempts(ledger: &PaymentExplanation) -> Table<5> {
    let names = [("no", Right), ("recorded at", Left), ("outcome", Left), ("its id", Left), ("what", Left)];
    let mut table = Table::new(names);
    for row in &ledger.submissions {
        table.row([
            &row.attempt.to_string(),
            &row.recorded_at.to_string(),
            row.outcome.as_deref().unwrap_or("no answer recorded"),
            row.transfer_id.as_deref().unwrap_or_default(),
            row.detail.as_deref().unwrap_or_default(),
        ]);
    }
    table
}

fn operations(ledger: &PaymentExplanation) -> Table<4> {
    let mut table = Table::new(["key", "outcome", "recorded at", "reason"].map(|name| (name, Left)));
    for row in &ledger.operations {
        let (at, reason) = (row.recorded_at.to_string(), row.reason.as_deref().unwrap_or_default());
        table.row([&row.operation_key, &row.outcome, &at, reason]);
    }
    table
}

fn journal(ledger: &PaymentExplanation) -> Table<5> {
    let names = [("kind", Left), ("debit", Left), ("credit", Left), ("amount", Right), ("posted at", Left)];
    let mut table = Table::new(names);
    for row in &ledger.journal {
        let (amount, at) = (document::money(row.amount_minor, &row.currency), row.posted_at.to_string());
        table.row([&row.kind, &row.debit_account, &row.credit_account, &amount, &at]);
    }
    table
}

fn callbacks(ledger: &PaymentExplanation) -> Table<6> {
    let names = ["switch", "event", "says", "amount", "received at", "reason"].map(|name| (name, Left));
    let mut table = Table::new(names);
    for row in &ledger.callbacks {
        let (amount, at) = (document::money(row.amount_minor, &row.currency), row.received_at.to_string());
        let reason = row.reason.as_deref().unwrap_or_default();
        table.row([&row.switch, &row.event_id, &row.status, &amount, &at, reason]);
    }
    table
}

fn inbox(ledger: &PaymentExplanation) -> Table<4> {
    let mut table = Table::new(["what", "of", "received at", "delivered"].map(|name| (name, Left)));
    for row in &ledger.inbox {
        let of = row.event_id.as_deref().or(row.decision_id.as_deref()).unwrap_or_default();
        let delivered = match row.delivered_at {
            Some(at) => at.to_string(),
            None => format!("not yet, after {} tries of the relay", row.delivery_attempts),
        };
        table.row([&row.kind, of, &row.received_at.to_string(), &delivered]);
    }
    table
}

fn decisions(ledger: &PaymentExplanation) -> Table<6> {
    let names = ["decision", "what", "status", "proposed by", "confirmed by", "what came of it"];
    let mut table = Table::new(names.map(|name| (name, Left)));
    for row in &ledger.decisions {
        let evidence = row.evidence.as_ref().map(|text| format!("; evidence: {text}")).unwrap_or_default();
        let proposed = format!("{}: {}{evidence}", row.proposed_by, row.reason);
        let confirmed = match (&row.confirmed_by, &row.confirm_reason) {
            (Some(by), Some(why)) => format!("{by}: {why}"),
            _ => String::new(),
        };
        let came = document::result(row);
        let id = row.decision_id.as_str();
        let (deed, status) = (row.action.as_str(), row.status.as_str());
        table.row([id, deed, status, &proposed, &confirmed, came.as_deref().unwrap_or_default()]);
    }
    table
}

fn alerts(ledger: &PaymentExplanation) -> Table<3> {
    let mut table = Table::new(["alert", "raised at", "what"].map(|name| (name, Left)));
    for row in &ledger.alerts {
        table.row([&row.kind, &row.raised_at.to_string(), &row.detail]);
    }
    table
}

fn notifications(ledger: &PaymentExplanation) -> Table<3> {
    let mut table = Table::new(["kind", "told at", "message"].map(|name| (name, Left)));
    for row in &ledger.notifications {
        table.row([&row.kind, &row.notified_at.to_string(), &row.message]);
    }
    table
}

fn invariants(picture: &Picture) -> Table<3> {
    let mut table = Table::new([("", Left); 3]);
    for row in &picture.invariants {
        let holds = match row.holds {
            Holds::Yes => "holds",
            Holds::No => "VIOLATED",
            Holds::NotSeen => "not seen",
        };
        table.row([row.number, holds, &row.detail]);
    }
    table
}
