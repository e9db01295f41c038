//! Reads and writes of the account lock, which a switch without references needs.

use payment_protocol::PaymentState;
use payment_protocol::ids::{PaymentId, SwitchName};
use payment_protocol::state::FinalState;
use postgres_kit::text::replace_nul;

use crate::{Ledger, LedgerError};

impl Ledger {
    /// The switch of a payment and its account at the destination bank: what the account lock locks.
    ///
    /// # Errors
    /// [`LedgerError`]: unknown; repeat.
    pub async fn account_at_switch(
        &self,
        payment_id: &PaymentId,
    ) -> Result<(SwitchName, String), LedgerError> {
        let row = sqlx::query!(
            "SELECT switch, destination_account FROM payments WHERE payment_id = $1",
            payment_id.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or_else(|| LedgerError::UnknownPayment(payment_id.to_string()))?;
        let switch = SwitchName::new(row.switch.as_str()).map_err(|_| LedgerError::Unreadable {
            id: payment_id.to_string(),
            column: "switch",
            value: row.switch,
        })?;
        Ok((switch, row.destination_account))
    }

    /// The payment's final state; `None` while it is open. The account lock is passed on only after the end.
    ///
    /// # Errors
    /// [`LedgerError`]: unknown; repeat.
    pub async fn final_state_of(&self, payment_id: &PaymentId) -> Result<Option<FinalState>, LedgerError> {
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

    /// Records the newest transfer to the account in the switch's list as of this attempt, once the attempt was recorded and no
    /// other payment can send to the account. Call it before sending. The first marker is kept. Returns whether the attempt has one now;
    /// otherwise the database lost the attempt's commit: do not send.
    ///
    /// # Errors
    /// [`LedgerError`]: unknown whether it was recorded; do not send.
    pub async fn record_marker(
        &self,
        payment_id: &PaymentId,
        attempt: u32,
        marker: &str,
    ) -> Result<bool, LedgerError> {
        let recorded = sqlx::query!(
            "UPDATE submissions SET marker = coalesce(marker, $3) WHERE payment_id = $1 AND attempt = $2",
            payment_id.as_str(),
            i32::try_from(attempt).unwrap_or(i32::MAX),
            &*replace_nul(marker),
        )
        .execute(&self.pool)
        .await?;
        Ok(recorded.rows_affected() > 0)
    }
}
