//! The writes that every step shares: state and timeline, operation keys, exceptions.

use std::borrow::Cow;

use payment_protocol::PaymentState;
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::ids::PaymentId;
use payment_protocol::text_enum;
use sqlx::PgConnection;

use crate::{LedgerError, events};

/// Moves the payment to `state`, writes the timeline and tells others. An end gets its time, and closes what people had yet to decide:
/// what moved the payment was quicker.
pub(crate) async fn state(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    state: PaymentState,
    detail: &str,
) -> Result<(), LedgerError> {
    let end = state.end();
    let came =
        end.map(|end| serde_json::to_value(DecisionOutcome::Ended(end))).transpose().map_err(|error| {
            LedgerError::Unreadable {
                id: payment_id.to_string(),
                column: "outcome",
                value: error.to_string(),
            }
        })?;
    sqlx::query!(
        "WITH overtaken AS (
             UPDATE decisions
             SET status = CASE status WHEN 'confirmed' THEN 'refused' ELSE 'withdrawn' END,
                 outcome = CASE status WHEN 'confirmed' THEN $4::jsonb END,
                 detail = 'the payment ended first: ' || $2, closed_at = clock_timestamp()
             WHERE $3 AND payment_id = $1 AND status IN ('proposed', 'confirmed')),
         woken AS (
             INSERT INTO inbox (payment_id, kind)
             SELECT payment_id, 'final_status' FROM payments
             WHERE $3 AND payment_id = $1 AND operator_reason IS NOT NULL)
         UPDATE payments
         SET state = $2, updated_at = clock_timestamp(), ended_at = CASE WHEN $3 THEN clock_timestamp() END
         WHERE payment_id = $1",
        payment_id.as_str(),
        state.as_str(),
        end.is_some(),
        came,
    )
    .execute(&mut *tx)
    .await?;
    timeline(tx, payment_id, state, detail).await?;
    events::tell(tx, payment_id, state).await
}

/// Foreign words as a column can hold them. A switch's JSON may carry NUL and PostgreSQL's text may
/// not: one such answer would be refused for ever, and its payment would stand still.
pub(crate) fn storable(words: &str) -> Cow<'_, str> {
    if words.contains('\0') { words.replace('\0', "\u{fffd}").into() } else { words.into() }
}

/// As [`storable`], for all the words in an object.
pub(crate) fn storable_json(mut json: serde_json::Value) -> serde_json::Value {
    match &mut json {
        serde_json::Value::String(words) => *words = storable(words).into_owned(),
        serde_json::Value::Object(fields) => {
            fields.values_mut().for_each(|value| *value = storable_json(value.take()));
        }
        serde_json::Value::Array(values) => {
            values.iter_mut().for_each(|value| *value = storable_json(value.take()));
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
    json
}

/// Writes the timeline without moving the payment.
pub(crate) async fn timeline(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    state: PaymentState,
    detail: &str,
) -> Result<(), LedgerError> {
    write_timeline(tx, payment_id, state, detail, false).await
}

/// Writes into the timeline what is the bank's own: the customer is not shown it.
pub(crate) async fn internal(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    state: PaymentState,
    detail: &str,
) -> Result<(), LedgerError> {
    write_timeline(tx, payment_id, state, detail, true).await
}

async fn write_timeline(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    state: PaymentState,
    detail: &str,
    is_internal: bool,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "INSERT INTO timeline (payment_id, state, detail, is_internal) VALUES ($1, $2, $3, $4)",
        payment_id.as_str(),
        state.as_str(),
        &*storable(detail),
        is_internal,
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// Records that the operation under `key` was done.
pub(crate) async fn done(
    tx: &mut PgConnection,
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
pub(crate) async fn refused(
    tx: &mut PgConnection,
    key: &str,
    payment_id: &PaymentId,
    reason: &str,
) -> Result<(), LedgerError> {
    not_done(tx, key, payment_id, "refused", reason).await
}

/// Records that the operation under `key` cannot be done by whom it was asked of.
pub(crate) async fn impossible(
    tx: &mut PgConnection,
    key: &str,
    payment_id: &PaymentId,
    reason: &str,
) -> Result<(), LedgerError> {
    not_done(tx, key, payment_id, "impossible", reason).await
}

async fn not_done(
    tx: &mut PgConnection,
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
        &*storable(reason),
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

text_enum!(
    /// A contradictory_final_status met when a word came in or a decision was carried out; what an audit or a sweep finds is
    /// [`crate::audit::reconcile::drift::Drift`].
    Exception {
        /// SUCCESS of a payment that had ended otherwise.
        LateConfirmation = "late_confirmation",
        /// A definite answer that is not the first one.
        ContradictoryFinalStatus = "contradictory_final_status",
        /// SUCCESS of another amount, currency or reference.
        ConfirmationMismatch = "confirmation_mismatch",
        /// SUCCESS of a payment of which no attempt is on record.
        SettledWithoutAttempt = "settled_without_attempt",
        /// An authentic callback for a reference that is no payment's.
        CallbackForUnknownPayment = "callback_for_unknown_payment",
        /// A word of one switch about another's payment.
        CallbackFromOtherSwitch = "callback_from_other_switch",
        /// An event id used again with another body.
        CallbackEventIdReused = "callback_event_id_reused",
        /// A debit that the customer's account could not bear: the claims account does.
        DebitedToClaims = "debited_to_claims",
    }
);

/// Opens an exception, once per kind and origin.
pub(crate) async fn exception(
    tx: &mut PgConnection,
    payment_id: Option<&PaymentId>,
    kind: Exception,
    origin: &str,
    detail: &str,
) -> Result<(), LedgerError> {
    let opened = sqlx::query!(
        "INSERT INTO exceptions (payment_id, kind, origin, detail) VALUES ($1, $2, $3, $4)
         ON CONFLICT (kind, origin) WHERE closed_at IS NULL DO NOTHING",
        payment_id.map(PaymentId::as_str),
        kind.as_str(),
        &*storable(origin),
        &*storable(detail),
    )
    .execute(&mut *tx)
    .await?;
    if opened.rows_affected() > 0 {
        tracing::error!(
            payment.id = payment_id.map(PaymentId::as_str),
            exception.kind = kind.as_str(),
            detail,
            "exception opened"
        );
    }
    Ok(())
}
