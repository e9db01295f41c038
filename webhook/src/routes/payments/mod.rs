//! `/api/v1/payments`: order, view, and one file for each verb.

pub(crate) mod acceptance;
pub(crate) mod cancel;
pub(crate) mod create;
pub(crate) mod events;
pub(crate) mod list;
mod order;
pub(crate) mod retrieve;
mod view;

use payment_protocol::ids::PaymentId;

use crate::error::{ApiError, payment_not_found};

pub(crate) use view::decimal;

/// Path of the collection.
const PAYMENTS: &str = "/api/v1/payments";

/// Path of one payment. Ids contain only characters that need no escaping.
fn path_of(payment_id: &str) -> String {
    format!("{PAYMENTS}/{payment_id}")
}

/// Parses a payment id of a path; a malformed id is not found.
fn payment_id(text: &str) -> Result<PaymentId, ApiError> {
    PaymentId::new(text).map_err(|_| payment_not_found(text).into())
}
