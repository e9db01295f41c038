//! Validation of request fields, before the request is counted or recorded.

use axum::http::HeaderMap;
use jiff::Timestamp;
use serde::Deserialize;
use service_kit::problem::Problem;

use crate::book::submit::TransferOrder;
use crate::plan::DEFAULT;

/// Largest amount in minor units.
const MAX_AMOUNT_MINOR: i64 = 1_000_000_000_000_000;
/// Longest reference, idempotency key, account or end-to-end id, in bytes.
const MAX_TEXT: usize = 200;

/// Words that have a meaning of their own in paths.
const RESERVED: [&str; 2] = [DEFAULT, "by-id"];

/// Body of a submit.
#[derive(Debug, Deserialize)]
pub(super) struct SubmitBody {
    reference: String,
    amount_minor: i64,
    currency: String,
    creditor_account: String,
    #[serde(default)]
    end_to_end_id: Option<String>,
    #[serde(default)]
    deadline: Option<Timestamp>,
}

impl SubmitBody {
    /// The order, or the first invalid field.
    pub(super) fn check(self) -> Result<TransferOrder, Problem> {
        reference(&self.reference)?;
        if !(1..=MAX_AMOUNT_MINOR).contains(&self.amount_minor) {
            let detail = format!("amount_minor must be from 1 to {MAX_AMOUNT_MINOR}");
            return Err(invalid(detail));
        }
        currency(&self.currency)?;
        text("creditor_account", &self.creditor_account)?;
        if let Some(id) = &self.end_to_end_id {
            text("end_to_end_id", id)?;
        }
        Ok(TransferOrder {
            reference: self.reference,
            amount_minor: self.amount_minor,
            currency: self.currency,
            creditor_account: self.creditor_account,
            end_to_end_id: self.end_to_end_id,
            deadline: self.deadline,
        })
    }
}

/// Checks the form of a reference.
pub(super) fn reference(value: &str) -> Result<(), Problem> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '_' | '.');
    let well_formed = (1..=MAX_TEXT).contains(&value.len()) && value.chars().all(fits);
    if well_formed && !RESERVED.contains(&value) {
        return Ok(());
    }
    Err(invalid(format!(
        "a reference must have 1 to {MAX_TEXT} letters, digits and : - _ . and must not be one of the words {}",
        RESERVED.join(", ")
    )))
}

/// Checks the form of an ISO 4217 code.
pub(super) fn currency(value: &str) -> Result<(), Problem> {
    if value.len() == 3 && value.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Ok(());
    }
    Err(invalid("currency must have three capital letters".to_owned()))
}

/// The idempotency key, which cancel and recall require.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<&str, Problem> {
    let missing = || {
        Problem::bad_request(
            "idempotency_key_required",
            "the header Idempotency-Key is missing or not ASCII; send one",
        )
    };
    let key = headers.get("idempotency-key").ok_or_else(missing)?;
    let key = key.to_str().map_err(|_| missing())?;
    text("Idempotency-Key", key)?;
    Ok(key)
}

/// The problem of an idempotency key that was used for another reference.
pub(super) fn key_reused() -> Problem {
    let detail = "this Idempotency-Key was used for another reference; send a new key";
    Problem::conflict("idempotency_key_reused", detail)
}

/// Checks that a text has 1 to 200 bytes and no control characters.
pub(super) fn text(name: &str, value: &str) -> Result<(), Problem> {
    if (1..=MAX_TEXT).contains(&value.len()) && !value.chars().any(char::is_control) {
        return Ok(());
    }
    Err(invalid(format!("{name} must have 1 to {MAX_TEXT} bytes and no control characters")))
}

/// Checks that a count is from 1 to `max`.
pub(super) fn within(name: &str, value: i64, max: i64) -> Result<(), Problem> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(invalid(format!("{name} must be from 1 to {max}")))
}

fn invalid(detail: String) -> Problem {
    Problem::bad_request("invalid_field", detail)
}
