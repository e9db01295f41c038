//! Writes that the steps share: state and timeline, operation keys, exceptions.

use payment_protocol::PaymentState;
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::ids::PaymentId;
use postgres_kit::Connection;
use postgres_kit::text::replace_nul;

use crate::{LedgerError, events};

/// Moves the payment to `state`, appends to its timeline and appends the state's event. A final state sets `ended_at`, and see
/// [`end_decisions`].
pub(crate) async fn move_to_state(
    tx: &mut Connection,
    payment_id: &PaymentId,
    state: PaymentState,
    detail: &str,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "UPDATE payments
         SET state = $2, updated_at = clock_timestamp(), ended_at = CASE WHEN $3 THEN clock_timestamp() END
         WHERE payment_id = $1",
        payment_id.as_str(),
        state.as_str(),
        state.end().is_some(),
    )
    .execute(&mut *tx)
    .await?;
    end_decisions(tx, payment_id, state).await?;
    append_timeline(tx, payment_id, state, detail).await?;
    events::append_event(tx, payment_id, state).await
}

/// Closes the open decision of a payment that enters a final state (the payment ended first), and wakes the workflow of a payment that
/// needed an operator. Does nothing for any other state.
pub(crate) async fn end_decisions(
    tx: &mut Connection,
    payment_id: &PaymentId,
    state: PaymentState,
) -> Result<(), LedgerError> {
    let Some(end) = state.end() else { return Ok(()) };
    let outcome = serde_json::to_value(DecisionOutcome::Ended(end)).map_err(|error| {
        LedgerError::Unreadable { id: payment_id.to_string(), column: "outcome", value: error.to_string() }
    })?;
    sqlx::query!(
        "WITH closed AS (
             UPDATE decisions
             SET status = CASE status WHEN 'confirmed' THEN 'refused' ELSE 'withdrawn' END,
                 outcome = CASE status WHEN 'confirmed' THEN $3::jsonb END,
                 detail = 'the payment ended first: ' || $2, closed_at = clock_timestamp()
             WHERE payment_id = $1 AND status IN ('proposed', 'confirmed'))
         INSERT INTO inbox (payment_id, kind)
         SELECT payment_id, 'final_status' FROM payments WHERE payment_id = $1 AND operator_reason IS NOT NULL",
        payment_id.as_str(),
        state.as_str(),
        outcome,
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// As [`replace_nul`], for every string of a JSON value.
pub(crate) fn replace_nul_json(mut json: serde_json::Value) -> serde_json::Value {
    match &mut json {
        serde_json::Value::String(text) => *text = replace_nul(text).into_owned(),
        serde_json::Value::Object(fields) => {
            fields.values_mut().for_each(|value| *value = replace_nul_json(value.take()));
        }
        serde_json::Value::Array(values) => {
            values.iter_mut().for_each(|value| *value = replace_nul_json(value.take()));
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
    json
}

/// Appends to the timeline without moving the payment.
pub(crate) async fn append_timeline(
    tx: &mut Connection,
    payment_id: &PaymentId,
    state: PaymentState,
    detail: &str,
) -> Result<(), LedgerError> {
    write_timeline(tx, payment_id, state, detail, false).await
}

/// Appends an internal line to the timeline: operators see it, the customer does not.
pub(crate) async fn append_internal_timeline(
    tx: &mut Connection,
    payment_id: &PaymentId,
    state: PaymentState,
    detail: &str,
) -> Result<(), LedgerError> {
    write_timeline(tx, payment_id, state, detail, true).await
}

async fn write_timeline(
    tx: &mut Connection,
    payment_id: &PaymentId,
    state: PaymentState,
    detail: &str,
    is_internal: bool,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "INSERT INTO timeline (payment_id, state, detail, is_internal) VALUES ($1, $2, $3, $4)",
        payment_id.as_str(),
        state.as_str(),
        &*replace_nul(detail),
        is_internal,
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// Records that the operation under `key` was done.
pub(crate) async fn record_done(
    tx: &mut Connection,
    key: &str,
    payment_id: &PaymentId,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "INSERT INTO operations (operation_key, payment_id, outcome) VALUES ($1, $2, 'done')",
        key,
        payment_id.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// Records that the operation under `key` was refused for good: a repeat gets the same answer.
pub(crate) async fn record_refused(
    tx: &mut Connection,
    key: &str,
    payment_id: &PaymentId,
    reason: &str,
) -> Result<(), LedgerError> {
    insert_operation(tx, key, payment_id, "refused", reason).await
}

/// Records that the switch has no such operation: a repeat gets the same answer.
pub(crate) async fn record_unsupported(
    tx: &mut Connection,
    key: &str,
    payment_id: &PaymentId,
    reason: &str,
) -> Result<(), LedgerError> {
    insert_operation(tx, key, payment_id, "unsupported", reason).await
}

async fn insert_operation(
    tx: &mut Connection,
    key: &str,
    payment_id: &PaymentId,
    outcome: &str,
    reason: &str,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "INSERT INTO operations (operation_key, payment_id, outcome, reason) VALUES ($1, $2, $3, $4)",
        key,
        payment_id.as_str(),
        outcome,
        &*replace_nul(reason),
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}
