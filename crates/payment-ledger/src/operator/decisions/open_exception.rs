//! Opening an exception about an ended payment, of which an operator knows what no report says.

use payment_protocol::exception::ExceptionKind;
use payment_protocol::ids::PaymentId;
use postgres_kit::Connection;

use super::propose::as_decide_error;
use super::rows::validate_operator_and_reason;
use super::{DecideError, DecisionRefusedError};
use crate::row_lock::lock_payment;
use crate::{Ledger, LedgerError, writes};

const KIND: ExceptionKind = ExceptionKind::OpenedByOperator;

impl Ledger {
    /// Opens an exception about an ended payment, so that a correction can be proposed; moves no money. While it is open, a further
    /// call returns the same exception.
    ///
    /// Refusals in order of precedence: no operator, no reason, unknown payment, payment still open.
    ///
    /// # Errors
    /// [`DecideError`].
    pub async fn open_exception_by_operator(
        &self,
        payment_id: &PaymentId,
        by: &str,
        reason: &str,
    ) -> Result<i64, DecideError> {
        let (by, reason) = validate_operator_and_reason(by, reason)?;
        let mut tx = self.begin_decision().await?;
        let locked =
            lock_payment(&mut tx, payment_id).await.map_err(|error| as_decide_error(error, payment_id))?;
        if locked.facts.state.end().is_none() {
            return Err(DecisionRefusedError::PaymentOpen(locked.facts.state).into());
        }
        if let Some(exception_id) = open_exception_of(&mut tx, payment_id).await? {
            return Ok(exception_id);
        }
        let detail = format!("opened by {by}: {reason}");
        tx.open_exception(Some(payment_id), KIND, payment_id.as_str(), &detail).await?;
        let line = format!("exception {detail}");
        writes::append_internal_timeline(&mut tx, payment_id, locked.facts.state, &line).await?;
        let exception_id = open_exception_of(&mut tx, payment_id).await?.ok_or(sqlx::Error::RowNotFound)?;
        tx.commit().await?;
        Ok(exception_id)
    }
}

async fn open_exception_of(tx: &mut Connection, payment_id: &PaymentId) -> Result<Option<i64>, LedgerError> {
    Ok(sqlx::query_scalar!(
        "SELECT exception_id FROM exceptions WHERE kind = $1 AND origin = $2 AND closed_at IS NULL",
        KIND.as_str(),
        payment_id.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?)
}
