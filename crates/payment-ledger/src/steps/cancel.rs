//! Cancel: begins the cancel in the ledger, which fences submit: no attempt is sent afterwards.

use payment_protocol::PaymentState;
use payment_protocol::cancel::CancelContext;
use payment_protocol::cause::Cause;
use payment_protocol::ids::PaymentId;
use payment_protocol::rules;

use crate::row_lock::lock_payment;
use crate::steps::release::write_cause;
use crate::{Ledger, LedgerError, writes};

impl Ledger {
    /// Marks the payment as cancelling for `cause` (the first recorded cause is kept) and returns what the cancel has to know.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn begin_cancel(
        &self,
        payment_id: &PaymentId,
        cause: &Cause,
    ) -> Result<CancelContext, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        let facts = &locked.facts;
        let context = CancelContext {
            end: facts.state.end(),
            final_status: facts.final_status,
            never_sent: rules::never_sent(facts),
            deadline_ms: locked.submit_deadline.map(|at| at.as_millisecond()),
            cancelling_ms: locked.cancelling_ms,
        };
        if context.end.is_some() || facts.final_status.is_some() {
            return Ok(context);
        }
        if facts.cause.is_none() {
            write_cause(&mut tx, payment_id, cause).await?;
        }
        if facts.state != PaymentState::Cancelling {
            sqlx::query!(
                "UPDATE payments SET cancelling_since = coalesce(cancelling_since, clock_timestamp())
                 WHERE payment_id = $1",
                payment_id.as_str(),
            )
            .execute(&mut *tx)
            .await?;
            let detail = format!("cancelling at the switch: {cause}");
            // A late cancel attempt must not take the payment out of the operators' queue.
            if facts.state == PaymentState::NeedsOperator {
                writes::append_timeline(&mut tx, payment_id, facts.state, &detail).await?;
            } else {
                writes::move_to_state(&mut tx, payment_id, PaymentState::Cancelling, &detail).await?;
            }
        }
        tx.commit().await?;
        Ok(context)
    }

    /// Age of the first attempt by the database's clock, in milliseconds; `None` if no attempt is recorded.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn first_attempt_age_ms(&self, payment_id: &PaymentId) -> Result<Option<u64>, LedgerError> {
        let row = sqlx::query!(
            r#"SELECT (extract(epoch FROM clock_timestamp() - first_attempt_at) * 1000)::bigint AS age_ms
               FROM payments WHERE payment_id = $1"#,
            payment_id.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or_else(|| LedgerError::UnknownPayment(payment_id.to_string()))?;
        Ok(row.age_ms.map(|age| u64::try_from(age).unwrap_or(0)))
    }
}
