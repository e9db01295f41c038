//! The id of a payment, as its row has it.

use payment_protocol::ids::PaymentId;

use crate::LedgerError;

/// A payment id as stored.
pub(crate) fn read_id(text: &str) -> Result<PaymentId, LedgerError> {
    PaymentId::new(text).map_err(|_| LedgerError::Unreadable {
        id: text.to_owned(),
        column: "payment_id",
        value: text.to_owned(),
    })
}
