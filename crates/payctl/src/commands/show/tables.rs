//! The tables of `payctl show`, one for each kind of record.

use payment_ledger::reads::explain::PaymentExplanation as LedgerExplanation;

use crate::document;
use crate::explain::PaymentExplanation;
use crate::table::{Align, Table};

use Align::{Left, Right};

pub(super) fn attempts(ledger: &LedgerExplanation) -> Table<5> {
    let names = [
        ("attempt", Right),
        ("recorded at", Left),
        ("outcome", Left),
        ("transfer id", Left),
        ("detail", Left),
    ];
    let mut table = Table::new(names);
    for row in &ledger.submissions {
        table.row([
            &row.attempt.to_string(),
            &row.recorded_at.to_string(),
            row.outcome.as_deref().unwrap_or("none recorded"),
            row.transfer_id.as_deref().unwrap_or_default(),
            row.detail.as_deref().unwrap_or_default(),
        ]);
    }
    table
}

pub(super) fn operations(ledger: &LedgerExplanation) -> Table<4> {
    let mut table = Table::new(["key", "outcome", "recorded at", "reason"].map(|name| (name, Left)));
    for row in &ledger.operations {
        let (at, reason) = (row.recorded_at.to_string(), row.reason.as_deref().unwrap_or_default());
        table.row([&row.operation_key, &row.outcome, &at, reason]);
    }
    table
}

pub(super) fn journal(ledger: &LedgerExplanation) -> Table<5> {
    let names = [("kind", Left), ("debit", Left), ("credit", Left), ("amount", Right), ("posted at", Left)];
    let mut table = Table::new(names);
    for row in &ledger.journal {
        let (amount, at) = (document::money(row.amount_minor, &row.currency), row.posted_at.to_string());
        table.row([&row.kind, &row.debit_account, &row.credit_account, &amount, &at]);
    }
    table
}

pub(super) fn callbacks(ledger: &LedgerExplanation) -> Table<6> {
    let names = ["switch", "event", "status", "amount", "received at", "reason"].map(|name| (name, Left));
    let mut table = Table::new(names);
    for row in &ledger.callbacks {
        let (amount, at) = (document::money(row.amount_minor, &row.currency), row.received_at.to_string());
        let reason = row.reason.as_deref().unwrap_or_default();
        table.row([&row.switch, &row.event_id, &row.status, &amount, &at, reason]);
    }
    table
}

pub(super) fn inbox(ledger: &LedgerExplanation) -> Table<4> {
    let names = ["message", "event or decision", "received at", "delivered at"].map(|name| (name, Left));
    let mut table = Table::new(names);
    for row in &ledger.inbox {
        let subject = row.event_id.as_deref().or(row.decision_id.as_deref()).unwrap_or_default();
        let delivered = match row.delivered_at {
            Some(at) => at.to_string(),
            None => format!("not yet; attempts of background-worker: {}", row.delivery_attempts),
        };
        table.row([&row.kind, subject, &row.received_at.to_string(), &delivered]);
    }
    table
}

pub(super) fn decisions(ledger: &LedgerExplanation) -> Table<6> {
    let names = ["decision", "action", "status", "proposed by", "confirmed by", "result"];
    let mut table = Table::new(names.map(|name| (name, Left)));
    for row in &ledger.decisions {
        let evidence = row.evidence.as_ref().map(|text| format!("; evidence: {text}")).unwrap_or_default();
        let proposed = format!("{}: {}{evidence}", row.proposed_by, row.reason);
        let confirmed = match (&row.confirmed_by, &row.confirm_reason) {
            (Some(by), Some(reason)) => format!("{by}: {reason}"),
            _ => String::new(),
        };
        let result = row.result();
        let id = row.decision_id.as_str();
        let (action, status) = (row.action.as_str(), row.status.as_str());
        table.row([id, action, status, &proposed, &confirmed, result.as_deref().unwrap_or_default()]);
    }
    table
}

pub(super) fn alerts(ledger: &LedgerExplanation) -> Table<3> {
    let mut table = Table::new(["alert", "raised at", "detail"].map(|name| (name, Left)));
    for row in &ledger.alerts {
        table.row([&row.kind, &row.raised_at.to_string(), &row.detail]);
    }
    table
}

pub(super) fn notifications(ledger: &LedgerExplanation) -> Table<3> {
    let mut table = Table::new(["kind", "notified at", "message"].map(|name| (name, Left)));
    for row in &ledger.notifications {
        table.row([&row.kind, &row.notified_at.to_string(), &row.message]);
    }
    table
}

pub(super) fn invariants(explanation: &PaymentExplanation) -> Table<4> {
    let mut table = Table::new(["number", "invariant", "status", "evidence"].map(|name| (name, Left)));
    for row in &explanation.invariants {
        table.row([row.number, row.invariant, row.status.as_str(), &row.evidence]);
    }
    table
}
