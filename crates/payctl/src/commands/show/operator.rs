//! A payment for operators: violated invariants first, then the payment, then each system's records.

use jiff::Timestamp;
use payment_ledger::reads::explain::PaymentExplanation as LedgerExplanation;
use payment_protocol::PaymentState;

use super::super::exceptions;
use super::tables;
use crate::api::TimelineStep;
use crate::explain::PaymentExplanation;
use crate::output::{Output, OutputError, escape_control};
use crate::table::{Align, Table};
use crate::watch::TimelineLine;
use crate::{age, document};

pub(super) fn print(explanation: &PaymentExplanation, out: &mut Output<'_>) -> Result<(), OutputError> {
    let ledger = &explanation.ledger;
    let mut has_violation = false;
    for violated in explanation.violated() {
        has_violation = true;
        out.write_line(format_args!(
            "VIOLATED {} ({}): {}",
            violated.number,
            violated.invariant,
            escape_control(&violated.evidence)
        ))?;
    }
    if has_violation {
        let id = &ledger.payment.view.payment_id;
        out.write_line(format_args!("next: payctl exceptions --payment {id}; payctl ledger verify\n"))?;
    }
    out.write_line(fields(explanation))?;
    section(out, "submit attempts", &tables::attempts(ledger))?;
    section(out, "operations", &tables::operations(ledger))?;
    section(out, "journal", &tables::journal(ledger))?;
    section(out, "callbacks", &tables::callbacks(ledger))?;
    section(out, "inbox", &tables::inbox(ledger))?;
    section(out, "decisions", &tables::decisions(ledger))?;
    section(out, "exceptions", &exceptions::table(&ledger.exceptions, explanation.read_at))?;
    section(out, "alerts", &tables::alerts(ledger))?;
    section(out, "customer notifications", &tables::notifications(ledger))?;
    section(out, "invariants", &tables::invariants(explanation))?;
    out.write_line("\ntimeline")?;
    for entry in &ledger.timeline {
        let step =
            TimelineStep { status: entry.state.clone(), detail: entry.detail.clone(), at: entry.happened_at };
        out.write_line(TimelineLine { accepted_at: ledger.payment.view.accepted_at, step: &step })?;
    }
    Ok(())
}

fn section<const N: usize>(out: &mut Output<'_>, name: &str, table: &Table<N>) -> Result<(), OutputError> {
    match table.is_empty() {
        true => out.write_line(format_args!("\n{name}: none")),
        false => out.write_line(format_args!("\n{name}\n{table}")),
    }
}

/// The payment's fields, one a row; a field without a value has no row.
struct Fields(Table<2>);

impl Fields {
    fn add(&mut self, name: &str, value: &str) {
        self.0.row([name, value]);
    }

    fn add_some(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }
}

fn fields(explanation: &PaymentExplanation) -> Table<2> {
    let row = &explanation.ledger.payment;
    let view = &row.view;
    let mut fields = Fields(Table::new([("", Align::Left), ("", Align::Left)]));
    fields.add("payment", &view.payment_id);
    fields.add("transaction", &view.tx_id);
    fields.add_some("rail id", row.rail_id.as_deref());
    fields.add("state", &state(explanation));
    if view.state == PaymentState::NeedsOperator {
        fields.add("allowed actions", &allowed_actions(explanation));
    }
    fields.add_some("reason", view.reason.as_deref());
    fields.add_some("cause", row.cause.as_ref().map(ToString::to_string).as_deref());
    fields.add("tenant, client", &format!("{}, {}", row.tenant_id, row.client_id));
    fields.add("amount", &document::money(view.amount_minor, &view.currency));
    fields.add("from", &view.source_account);
    fields.add("to", &view.destination_account);
    fields.add_some("end-to-end id", view.end_to_end_id.as_deref());
    fields.add("accepted at", &view.accepted_at.to_string());
    fields.add_some("account restored at", view.restored_at.map(|at| at.to_string()).as_deref());
    fields.add_some("ended at", view.ended_at.map(|at| at.to_string()).as_deref());
    fields.add("hold", &hold(&explanation.ledger));
    if view.returned_minor > 0 {
        fields.add("came back", &document::money(view.returned_minor, &view.currency));
    }
    fields.add_some("recall", recall(explanation).as_deref());
    fields.add("switch", &format!("{}, strategy {}", view.switch, row.profile.strategy));
    fields.add("final status", &final_status(&explanation.ledger));
    fields.add_some("queries", queries(explanation).as_deref());
    fields.add(
        "switch reports",
        &match &explanation.switch {
            Ok(view) => view.describe(),
            Err(error) => format!("unavailable: {error}"),
        },
    );
    fields.add("workflow", &view.workflow_id);
    fields.add_some("first run", row.run_id.as_deref());
    fields.add_some(
        "recovery workflows",
        (row.resume_count > 0).then(|| row.resume_count.to_string()).as_deref(),
    );
    fields.add("Temporal reports", &workflow(explanation));
    fields.0
}

/// The state, how long the payment has been in it, and the operator reason.
fn state(explanation: &PaymentExplanation) -> String {
    let view = &explanation.ledger.payment.view;
    if view.state.end().is_some() {
        return view.state.to_string();
    }
    let cancelling_since =
        explanation.ledger.payment.cancelling_since.filter(|_| view.state == PaymentState::Cancelling);
    let since = view.needs_operator_since.or(cancelling_since).unwrap_or(view.updated_at);
    let reason = view.operator_reason.as_deref().filter(|_| view.state == PaymentState::NeedsOperator);
    let reason = reason.map(|reason| format!("; reason: {reason}")).unwrap_or_default();
    format!("{} for {}{reason}", view.state, elapsed(since, explanation.read_at))
}

fn elapsed(since: Timestamp, now: Timestamp) -> String {
    age::format(now.duration_since(since).as_secs())
}

fn allowed_actions(explanation: &PaymentExplanation) -> String {
    let view = &explanation.ledger.payment.view;
    match view.allowed_actions.as_slice() {
        [] => "none; the service retries".into(),
        actions => format!(
            "{}; next: payctl decide {} ACTION --reason TEXT [--evidence TEXT]",
            document::actions(actions),
            view.payment_id
        ),
    }
}

fn hold(ledger: &LedgerExplanation) -> String {
    match &ledger.hold {
        Some(hold) => {
            let money = document::money(hold.amount_minor, &ledger.payment.view.currency);
            let bearer = if hold.borne_by_bank_since.is_some() { ", borne by the bank" } else { "" };
            format!("{money} in {}: {}{bearer}", hold.account_id, hold.status)
        }
        None => "none".into(),
    }
}

/// The recall that goes on after the end, and how long its answer may still take.
fn recall(explanation: &PaymentExplanation) -> Option<String> {
    let recall = explanation.ledger.recall.as_ref()?;
    let sent =
        if recall.attempts == 1 { "sent once".into() } else { format!("sent {} times", recall.attempts) };
    let due = if recall.answer_due_at <= explanation.read_at {
        format!(", overdue for {}", elapsed(recall.answer_due_at, explanation.read_at))
    } else {
        format!(", due in {}", elapsed(explanation.read_at, recall.answer_due_at))
    };
    let due = if recall.status.is_finished() { String::new() } else { due };
    let detail = recall.detail.as_ref().map(|detail| format!("; {detail}")).unwrap_or_default();
    Some(format!("{}, {sent}{due}{detail}", recall.status))
}

/// The service's queries of the transfer, where the switch limits them.
fn queries(explanation: &PaymentExplanation) -> Option<String> {
    let row = &explanation.ledger.payment;
    if !row.profile.counts_queries() {
        return None;
    }
    let of = match row.profile.asks_max {
        0 => String::new(),
        max => format!(" of {max}"),
    };
    let last = row.last_query_at.map(|at| format!(", the last one at {at}")).unwrap_or_default();
    Some(format!("{}{of}{last}", row.queries))
}

fn final_status(ledger: &LedgerExplanation) -> String {
    let row = &ledger.payment;
    match &row.final_status {
        Some(final_status) => {
            format!("{final_status}, source: {}", row.final_status_source.as_deref().unwrap_or("unknown"))
        }
        None => "none yet".into(),
    }
}

fn workflow(explanation: &PaymentExplanation) -> String {
    match &explanation.workflow {
        Ok(view) => {
            let state = match (&view.state, &view.query_error) {
                (Some(state), _) => format!("state by its query: {state}"),
                (None, Some(error)) => format!("state unknown: {error}"),
                (None, None) => "state unknown".into(),
            };
            let worker = view.worker.as_deref().map(|worker| format!(", on {worker}")).unwrap_or_default();
            format!("{}{worker}, run {}; {state}", view.status, view.run_id)
        }
        Err(error) => format!("unavailable: {error}"),
    }
}
