//! The JSON document of `payctl show --json`.

use payment_ledger::reads::explain::PaymentExplanation as LedgerExplanation;
use serde_json::{Value, json};

use crate::document;
use crate::explain::PaymentExplanation;

/// The JSON document of a payment with its records; scripts depend on the field names. An unavailable system has only
/// `error`, the reason.
pub(super) fn document(explanation: &PaymentExplanation) -> Value {
    let PaymentExplanation { ledger, workflow, switch, invariants, read_at } = explanation;
    let violated: Vec<&str> = explanation.violated().map(|invariant| invariant.number).collect();
    json!({
        "read_at": read_at,
        "violated": violated,
        "payment": payment(ledger),
        "workflow": match workflow {
            Ok(view) => json!(view),
            Err(error) => json!({ "error": error }),
        },
        "switch": match switch {
            Ok(view) => json!({
                "method": view.method,
                "answer": view.answer_word(),
                "detail": view.describe(),
                "transfer_id": view.transfer_id,
            }),
            Err(error) => json!({ "error": error }),
        },
        "hold": hold(ledger),
        "recall": recall(ledger),
        "submissions": submissions(ledger),
        "operations": operations(ledger),
        "journal": journal(ledger),
        "callbacks": callbacks(ledger),
        "inbox": inbox(ledger),
        "decisions": ledger.decisions.iter().map(document::decision).collect::<Vec<_>>(),
        "exceptions": ledger.exceptions.iter().map(document::exception).collect::<Vec<_>>(),
        "alerts": alerts(ledger),
        "notifications": notifications(ledger),
        "invariants": invariants,
        "timeline": timeline(ledger),
    })
}

fn payment(ledger: &LedgerExplanation) -> Value {
    let row = &ledger.payment;
    let mut payment = document::payment(&row.view);
    let operator_fields = json!({
        "tenant": row.tenant_id,
        "client": row.client_id,
        "profile": row.profile,
        "resume_count": row.resume_count,
        "run_id": row.run_id,
        "attempts": row.attempts,
        "first_attempt_at": row.first_attempt_at,
        "submit_deadline": row.submit_deadline,
        "rail_id": row.rail_id,
        "cause": row.cause,
        "cancelling_since": row.cancelling_since,
        "final_status": row.final_status,
        "final_status_source": row.final_status_source,
        "valid_until": row.valid_until,
        "started_at": row.started_at,
        "queries": row.queries,
        "last_query_at": row.last_query_at,
    });
    if let (Some(payment), Value::Object(fields)) = (payment.as_object_mut(), operator_fields) {
        payment.extend(fields);
    }
    payment
}

fn hold(ledger: &LedgerExplanation) -> Option<Value> {
    ledger.hold.as_ref().map(|hold| {
        json!({
            "account_id": hold.account_id,
            "amount_minor": hold.amount_minor,
            "status": hold.status,
            "opened_at": hold.opened_at,
            "closed_at": hold.closed_at,
        })
    })
}

fn recall(ledger: &LedgerExplanation) -> Option<Value> {
    ledger.recall.as_ref().map(|recall| {
        json!({
            "status": recall.status.as_str(),
            "detail": recall.detail,
            "attempts": recall.attempts,
            "requested_at": recall.requested_at,
            "answer_due_at": recall.answer_due_at,
            "updated_at": recall.updated_at,
        })
    })
}

fn submissions(ledger: &LedgerExplanation) -> Vec<Value> {
    let rows = ledger.submissions.iter().map(|row| {
        json!({
            "attempt": row.attempt,
            "recorded_at": row.recorded_at,
            "outcome": row.outcome,
            "detail": row.detail,
            "answered_at": row.answered_at,
            "marker": row.marker,
            "transfer_id": row.transfer_id,
        })
    });
    rows.collect()
}

fn operations(ledger: &LedgerExplanation) -> Vec<Value> {
    let rows = ledger.operations.iter().map(|row| {
        json!({
            "operation_key": row.operation_key,
            "outcome": row.outcome,
            "reason": row.reason,
            "recorded_at": row.recorded_at,
        })
    });
    rows.collect()
}

fn journal(ledger: &LedgerExplanation) -> Vec<Value> {
    let rows = ledger.journal.iter().map(|row| {
        json!({
            "operation_key": row.operation_key,
            "kind": row.kind,
            "debit_account": row.debit_account,
            "credit_account": row.credit_account,
            "amount_minor": row.amount_minor,
            "currency": row.currency,
            "posted_at": row.posted_at,
        })
    });
    rows.collect()
}

fn callbacks(ledger: &LedgerExplanation) -> Vec<Value> {
    let rows = ledger.callbacks.iter().map(|row| {
        json!({
            "switch": row.switch,
            "event_id": row.event_id,
            "status": row.status,
            "amount_minor": row.amount_minor,
            "currency": row.currency,
            "reason": row.reason,
            "received_at": row.received_at,
        })
    });
    rows.collect()
}

fn inbox(ledger: &LedgerExplanation) -> Vec<Value> {
    let rows = ledger.inbox.iter().map(|row| {
        json!({
            "kind": row.kind,
            "event_id": row.event_id,
            "decision_id": row.decision_id,
            "received_at": row.received_at,
            "delivery_attempts": row.delivery_attempts,
            "delivered_at": row.delivered_at,
        })
    });
    rows.collect()
}

fn alerts(ledger: &LedgerExplanation) -> Vec<Value> {
    let rows = ledger.alerts.iter();
    rows.map(|row| json!({ "kind": row.kind, "detail": row.detail, "raised_at": row.raised_at })).collect()
}

fn notifications(ledger: &LedgerExplanation) -> Vec<Value> {
    let rows = ledger.notifications.iter();
    rows.map(|row| json!({ "kind": row.kind, "message": row.message, "notified_at": row.notified_at }))
        .collect()
}

fn timeline(ledger: &LedgerExplanation) -> Vec<Value> {
    let rows = ledger.timeline.iter();
    rows.map(|row| json!({ "state": row.state, "detail": row.detail, "at": row.happened_at })).collect()
}
