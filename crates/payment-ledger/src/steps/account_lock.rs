//! What the lock of a destination account needs to know, at a switch without references.

use payment_protocol::PaymentState;
use payment_protocol::ids::PaymentId;
use payment_protocol::state::FinalState;

use crate::{Ledger, LedgerError, writes};

impl Ledger {
    /// How a payment ended; none while it is open. The account it has taken is passed on only then.
    ///
    /// # Errors
    /// [`LedgerError`]: not known.
    pub async fn end_of(&self, payment_id: &PaymentId) -> Result<Option<FinalState>, LedgerError> {
        let state =
            sqlx::query_scalar!("SELECT state FROM payments WHERE payment_id = $1", payment_id.as_str())
                .fetch_optional(&self.pool)
                .await?
                .ok_or_else(|| LedgerError::UnknownPayment(payment_id.to_string()))?;
        match PaymentState::parse(&state) {
            Some(state) => Ok(state.end()),
            None => {
                Err(LedgerError::Unreadable { id: payment_id.to_string(), column: "state", value: state })
            }
        }
    }

    /// Notes where the switch's list of transfers to the account stood when this attempt had been let out and nobody
    /// else could send to the account any more. Nothing goes out before it is noted.
    ///
    /// # Errors
    /// [`LedgerError`]: not noted, as far as is known; nothing may be sent.
    pub async fn note_marker(
        &self,
        payment_id: &PaymentId,
        attempt: u32,
        marker: &str,
    ) -> Result<(), LedgerError> {
        sqlx::query!(
            "UPDATE submissions SET marker = $3 WHERE payment_id = $1 AND attempt = $2 AND marker IS NULL",
            payment_id.as_str(),
            i32::try_from(attempt).unwrap_or(i32::MAX),
            &*writes::storable(marker),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
