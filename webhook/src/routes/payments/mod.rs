//! `/api/v1/payments`: what is asked for, what is shown, and one file per verb.

pub(crate) mod acceptance;
pub(crate) mod cancel;
pub(crate) mod create;
pub(crate) mod events;
pub(crate) mod list;
mod order;
pub(crate) mod read;
mod view;

use payment_protocol::ids::PaymentId;

use crate::error::{ApiError, payment_not_found};

pub(crate) use view::decimal;

/// Path of the collection.
const PAYMENTS: &str = "/api/v1/payments";

/// Path of one payment. Ids need no escaping: their alphabet is that of a path segment.
fn path_of(payment_id: &str) -> String {
    format!("{PAYMENTS}/{payment_id}")
}

/// Reads an id from a path. What is no id is no payment either: 404.
fn payment_id(text: &str) -> Result<PaymentId, ApiError> {
    PaymentId::new(text).map_err(|_| payment_not_found(text).into())
}
