//! The queries behind [`super::PaymentExplanation`].

use payment_protocol::SwitchProfile;
use payment_protocol::ids::{PaymentId, ReturnId};
use postgres_kit::Connection;

use super::{
    AlertView, CallbackView, HoldView, InboxMessageView, JournalEntryView, OperationView, PaymentRow,
    SubmissionView,
};
use crate::LedgerError;
use crate::profiles;
use crate::reads::queues::{ExceptionRow, ExceptionView};
use crate::reads::view::view;

pub(super) async fn row(
    tx: &mut Connection,
    payment_id: &PaymentId,
) -> Result<Option<PaymentRow>, LedgerError> {
    let row = sqlx::query!(
        r#"SELECT p.payment_id, p.tx_id, p.state, p.amount_minor, p.currency, p.source_account, p.destination_account,
                  p.end_to_end_id, p.switch, p.cause, p.operator_reason, p.workflow_id, p.accepted_at, p.updated_at,
                  p.ended_at, p.restored_at, p.returned_minor, p.needs_operator_since, o.reason AS "refusal?",
                  p.tenant_id, p.client_id, p.profile_hash, p.resume_count, p.run_id, p.attempts, p.first_attempt_at,
                  p.submit_deadline, p.rail_id, p.cancelling_since, p.final_status, p.final_status_source, p.valid_until, p.started_at,
                  p.asks, p.last_asked_at
           FROM payments p
           LEFT JOIN operations o ON o.operation_key = p.payment_id || ':reserve' AND o.outcome = 'refused'
           WHERE p.payment_id = $1"#,
        payment_id.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let profiles = profiles::read(tx, std::iter::once(row.profile_hash.as_slice())).await?;
    let unreadable = |column: &'static str, json: &serde_json::Value| LedgerError::Unreadable {
        id: payment_id.to_string(),
        column,
        value: json.to_string(),
    };
    Ok(Some(PaymentRow {
        tenant_id: row.tenant_id.clone(),
        client_id: row.client_id.clone(),
        profile: SwitchProfile::clone(&*profiles.of(payment_id.as_str(), &row.profile_hash)?),
        resume_count: row.resume_count,
        run_id: row.run_id.clone(),
        attempts: row.attempts,
        first_attempt_at: row.first_attempt_at.map(|at| at.to_jiff()),
        submit_deadline: row.submit_deadline.map(|at| at.to_jiff()),
        rail_id: row.rail_id.clone(),
        cause: row
            .cause
            .as_ref()
            .map(|json| serde_json::from_value(json.clone()).map_err(|_| unreadable("cause", json)))
            .transpose()?,
        cancelling_since: row.cancelling_since.map(|at| at.to_jiff()),
        final_status: row.final_status.clone(),
        final_status_source: row.final_status_source.clone(),
        valid_until: row.valid_until.to_jiff(),
        started_at: row.started_at.map(|at| at.to_jiff()),
        queries: row.asks,
        last_query_at: row.last_asked_at.map(|at| at.to_jiff()),
        view: view!(row),
    }))
}

pub(super) async fn submissions(
    tx: &mut Connection,
    payment_id: &PaymentId,
) -> Result<Vec<SubmissionView>, LedgerError> {
    let rows = sqlx::query!(
        "SELECT attempt, recorded_at, outcome, detail, answered_at, marker, transfer_id
         FROM submissions WHERE payment_id = $1 ORDER BY attempt",
        payment_id.as_str(),
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| SubmissionView {
            attempt: row.attempt,
            recorded_at: row.recorded_at.to_jiff(),
            outcome: row.outcome,
            detail: row.detail,
            answered_at: row.answered_at.map(|at| at.to_jiff()),
            marker: row.marker,
            transfer_id: row.transfer_id,
        })
        .collect())
}

pub(super) async fn operations(
    tx: &mut Connection,
    keys: &[String],
) -> Result<Vec<OperationView>, LedgerError> {
    let rows = sqlx::query!(
        "SELECT operation_key, outcome, reason, recorded_at FROM operations
         WHERE operation_key = ANY($1) ORDER BY recorded_at, operation_key",
        keys,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| OperationView {
            operation_key: row.operation_key,
            outcome: row.outcome,
            reason: row.reason,
            recorded_at: row.recorded_at.to_jiff(),
        })
        .collect())
}

/// The ids of the payment's returns, whichever switch reported them.
pub(super) async fn returns(
    tx: &mut Connection,
    payment_id: &PaymentId,
) -> Result<Vec<ReturnId>, LedgerError> {
    let ids = sqlx::query_scalar!(
        "SELECT return_id FROM returns WHERE payment_id = $1 ORDER BY received_at",
        payment_id.as_str(),
    )
    .fetch_all(tx)
    .await?;
    ids.into_iter()
        .map(|id| {
            ReturnId::new(id.as_str()).map_err(|_| LedgerError::Unreadable {
                id: payment_id.to_string(),
                column: "return_id",
                value: id,
            })
        })
        .collect()
}

pub(super) async fn journal(
    tx: &mut Connection,
    keys: &[String],
) -> Result<Vec<JournalEntryView>, LedgerError> {
    let rows = sqlx::query!(
        // Read by their keys before they are sorted: no plan reads the journal in the order of its entries.
        r#"WITH entries AS MATERIALIZED (
               SELECT entry_id, operation_key, kind, debit_account, credit_account, amount_minor, currency, posted_at
               FROM journal WHERE operation_key = ANY($1))
           SELECT operation_key AS "operation_key!", kind AS "kind!", debit_account AS "debit_account!",
                  credit_account AS "credit_account!", amount_minor AS "amount_minor!", currency AS "currency!",
                  posted_at AS "posted_at!"
           FROM entries ORDER BY entry_id"#,
        keys,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| JournalEntryView {
            operation_key: row.operation_key,
            kind: row.kind,
            debit_account: row.debit_account,
            credit_account: row.credit_account,
            amount_minor: row.amount_minor,
            currency: row.currency,
            posted_at: row.posted_at.to_jiff(),
        })
        .collect())
}

pub(super) async fn hold(
    tx: &mut Connection,
    payment_id: &PaymentId,
) -> Result<Option<HoldView>, LedgerError> {
    let row = sqlx::query!(
        "SELECT account_id, amount_minor, status, opened_at, borne_by_bank_since, closed_at FROM holds WHERE payment_id = $1",
        payment_id.as_str(),
    )
    .fetch_optional(tx)
    .await?;
    Ok(row.map(|row| HoldView {
        account_id: row.account_id,
        amount_minor: row.amount_minor,
        status: row.status,
        opened_at: row.opened_at.to_jiff(),
        borne_by_bank_since: row.borne_by_bank_since.map(|at| at.to_jiff()),
        closed_at: row.closed_at.map(|at| at.to_jiff()),
    }))
}

pub(super) async fn callbacks(
    tx: &mut Connection,
    payment_id: &PaymentId,
) -> Result<Vec<CallbackView>, LedgerError> {
    let rows = sqlx::query!(
        "SELECT switch, event_id, status, amount_minor, currency, reason, received_at FROM switch_callbacks
         WHERE payment_id = $1 ORDER BY received_at, event_id",
        payment_id.as_str(),
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| CallbackView {
            switch: row.switch,
            event_id: row.event_id,
            status: row.status,
            amount_minor: row.amount_minor,
            currency: row.currency,
            reason: row.reason,
            received_at: row.received_at.to_jiff(),
        })
        .collect())
}

pub(super) async fn inbox(
    tx: &mut Connection,
    payment_id: &PaymentId,
) -> Result<Vec<InboxMessageView>, LedgerError> {
    let rows = sqlx::query!(
        "SELECT kind, event_id, decision_id, received_at, delivery_attempts, delivered_at FROM inbox
         WHERE payment_id = $1 ORDER BY inbox_id",
        payment_id.as_str(),
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| InboxMessageView {
            kind: row.kind,
            event_id: row.event_id,
            decision_id: row.decision_id,
            received_at: row.received_at.to_jiff(),
            delivery_attempts: row.delivery_attempts,
            delivered_at: row.delivered_at.map(|at| at.to_jiff()),
        })
        .collect())
}

pub(super) async fn exceptions(
    tx: &mut Connection,
    payment_id: &PaymentId,
) -> Result<Vec<ExceptionView>, LedgerError> {
    let rows = sqlx::query_as!(
        ExceptionRow,
        "SELECT exception_id, payment_id, kind, detail, opened_at, closed_at, closed_by,
                (SELECT d.decision_id FROM decisions d WHERE d.exception_id = e.exception_id AND d.status = 'proposed'
                 ORDER BY d.proposed_at DESC LIMIT 1) AS proposed
         FROM exceptions e WHERE payment_id = $1 ORDER BY exception_id",
        payment_id.as_str(),
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(ExceptionView::from).collect())
}

pub(super) async fn alerts(
    tx: &mut Connection,
    payment_id: &PaymentId,
) -> Result<Vec<AlertView>, LedgerError> {
    let rows = sqlx::query!(
        "SELECT kind, detail, raised_at FROM alerts WHERE payment_id = $1 ORDER BY raised_at, kind",
        payment_id.as_str(),
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| AlertView { kind: row.kind, detail: row.detail, raised_at: row.raised_at.to_jiff() })
        .collect())
}
