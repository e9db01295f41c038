//! Starting payments, and restarting those whose workflow was lost.

use payment_protocol::cause::OperatorReason;
use payment_protocol::facts::Facts;
use payment_protocol::ids::{AccountId, PaymentId, TxId};
use payment_protocol::money::{Money, parse_currency};
use payment_protocol::{Payment, keys};

use crate::row_lock::lock_payment;
use crate::{Ledger, LedgerError, writes};

/// Starts that Temporal rejects before the payment needs an operator.
pub const START_REJECTIONS_MAX: i32 = 5;

/// A payment whose workflow is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartablePayment {
    /// Input of its workflow.
    pub payment: Payment,
    /// The Workflow ID.
    pub workflow_id: String,
    /// Whether a customer's cancel arrived first: do not start.
    pub cancel_requested: bool,
    /// Whether `valid_until` has passed: do not start.
    pub too_late: bool,
}

/// An open payment that was not updated for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdlePayment {
    /// The payment.
    pub payment_id: PaymentId,
    /// The workflow that should be running.
    pub workflow_id: String,
}

/// Columns of a payment that make a workflow input.
struct PaymentInputRow {
    payment_id: String,
    source_account: String,
    amount_minor: i64,
    currency: String,
    profile: serde_json::Value,
    resume_count: i32,
}

impl Ledger {
    /// Leases at most `limit` accepted payments, oldest first, for `lease_ms`. Skips switches with `max_in_flight` payments that
    /// were started and are not submitted yet.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn claim_accepted(
        &self,
        limit: i64,
        lease_ms: i64,
        max_in_flight: i64,
    ) -> Result<Vec<StartablePayment>, LedgerError> {
        let mut rows = sqlx::query!(
            r#"WITH full_switches AS (
                   SELECT switch FROM payments WHERE state IN ('started', 'reserved')
                   GROUP BY switch HAVING count(*) >= $3),
               due AS (
                   SELECT payment_id FROM payments
                   WHERE state = 'accepted' AND (start_lease_until IS NULL OR start_lease_until < clock_timestamp())
                     AND switch NOT IN (SELECT switch FROM full_switches)
                   ORDER BY accepted_at LIMIT $1 FOR UPDATE SKIP LOCKED)
               UPDATE payments p
               SET start_lease_until = clock_timestamp() + $2 * interval '1 millisecond'
               FROM due WHERE p.payment_id = due.payment_id
               RETURNING p.payment_id, p.source_account, p.amount_minor, p.currency, p.profile, p.resume_count,
                         p.workflow_id, p.accepted_at, clock_timestamp() > p.valid_until AS "too_late!",
                         EXISTS (SELECT FROM inbox i WHERE i.payment_id = p.payment_id AND i.kind = 'cancel')
                             AS "cancel_requested!""#,
            limit,
            lease_ms as f64,
            max_in_flight,
        )
        .fetch_all(&self.pool)
        .await?;
        // RETURNING does not keep the order.
        rows.sort_by_key(|row| row.accepted_at.to_jiff());
        let mut claimed = Vec::with_capacity(rows.len());
        for row in rows {
            match payment(PaymentInputRow {
                payment_id: row.payment_id,
                source_account: row.source_account,
                amount_minor: row.amount_minor,
                currency: row.currency,
                profile: row.profile,
                resume_count: row.resume_count,
            }) {
                Ok(payment) => claimed.push(StartablePayment {
                    payment,
                    workflow_id: row.workflow_id,
                    cancel_requested: row.cancel_requested,
                    too_late: row.too_late,
                }),
                Err(error) => {
                    tracing::error!(%error, "the ledger could not parse the row of an accepted payment, so the payment's workflow is not started")
                }
            }
        }
        Ok(claimed)
    }

    /// Records that the payment's workflow was started.
    ///
    /// # Errors
    /// [`LedgerError`]: the start is repeated, and Temporal rejects the duplicate.
    pub async fn mark_started(&self, payment_id: &PaymentId) -> Result<(), LedgerError> {
        sqlx::query!(
            "UPDATE payments
             SET state = 'started', started_at = coalesce(started_at, clock_timestamp()), updated_at = clock_timestamp()
             WHERE payment_id = $1 AND state = 'accepted'",
            payment_id.as_str(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Counts a start that Temporal rejected; after [`START_REJECTIONS_MAX`] the payment needs an
    /// operator.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn record_start_rejection(&self, payment_id: &PaymentId) -> Result<(), LedgerError> {
        let rejections = sqlx::query_scalar!(
            "UPDATE payments SET start_rejections = start_rejections + 1 WHERE payment_id = $1 RETURNING start_rejections",
            payment_id.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        if rejections.is_some_and(|count| count >= START_REJECTIONS_MAX) {
            self.needs_operator(payment_id, OperatorReason::WorkflowStartRefused).await?;
        }
        Ok(())
    }

    /// Leases at most `limit` open payments that were not updated for `liveness_check_after_ms`, for the liveness check of
    /// their workflow. The lease lasts as long again.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn claim_idle(
        &self,
        limit: i64,
        liveness_check_after_ms: i64,
    ) -> Result<Vec<IdlePayment>, LedgerError> {
        let rows = sqlx::query!(
            r#"WITH due AS (
                   SELECT payment_id FROM payments
                   WHERE ended_at IS NULL AND state <> 'accepted'
                     AND updated_at < clock_timestamp() - $2 * interval '1 millisecond'
                     AND (start_lease_until IS NULL OR start_lease_until < clock_timestamp())
                   ORDER BY updated_at LIMIT $1 FOR UPDATE SKIP LOCKED)
               UPDATE payments p
               SET start_lease_until = clock_timestamp() + $2 * interval '1 millisecond'
               FROM due WHERE p.payment_id = due.payment_id
               RETURNING p.payment_id, p.workflow_id"#,
            limit,
            liveness_check_after_ms as f64,
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(IdlePayment { payment_id: read_id(&row.payment_id)?, workflow_id: row.workflow_id })
            })
            .collect()
    }

    /// Prepares the recovery of a payment whose workflow `lost` is closed or gone: the caller starts the returned
    /// recovery workflow. `None` if the payment has ended or another process was faster.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn resume(
        &self,
        payment_id: &PaymentId,
        lost: &str,
    ) -> Result<Option<StartablePayment>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        let row = sqlx::query!(
            "SELECT workflow_id, resume_count, source_account, amount_minor, currency, profile
             FROM payments WHERE payment_id = $1",
            payment_id.as_str(),
        )
        .fetch_one(&mut *tx)
        .await?;
        if locked.facts.state.end().is_some() || row.workflow_id != lost {
            return Ok(None);
        }
        let n = row.resume_count.saturating_add(1);
        let workflow_id = keys::workflow_id(payment_id, u32::try_from(n).unwrap_or(u32::MAX));
        sqlx::query!(
            "UPDATE payments SET resume_count = $2, workflow_id = $3, updated_at = clock_timestamp()
             WHERE payment_id = $1",
            payment_id.as_str(),
            n,
            workflow_id,
        )
        .execute(&mut *tx)
        .await?;
        let detail = format!("resumed by the recovery workflow {workflow_id}");
        writes::append_timeline(&mut tx, payment_id, locked.facts.state, &detail).await?;
        tx.commit().await?;
        // While no run has reserved, a full start is allowed again: reserve stores its run by
        // compare-and-set.
        let Facts { run_id, reserve, cause, .. } = &locked.facts;
        let is_full_start = run_id.is_none() && reserve.is_none() && cause.is_none();
        Ok(Some(StartablePayment {
            payment: payment(PaymentInputRow {
                payment_id: payment_id.to_string(),
                source_account: row.source_account,
                amount_minor: row.amount_minor,
                currency: row.currency,
                profile: row.profile,
                resume_count: if is_full_start { 0 } else { n },
            })?,
            workflow_id,
            cancel_requested: locked.facts.cancel_requested,
            too_late: locked.too_late,
        }))
    }

    /// Sends the wake-up notification to the starters of all processes. Outside any money transaction:
    /// inside one, NOTIFY serialises all commits.
    ///
    /// # Errors
    /// [`LedgerError`]; harmless, since the starters also poll.
    pub async fn wake_starters(&self) -> Result<(), LedgerError> {
        sqlx::query!("SELECT pg_notify($1, '') AS notified", START_CHANNEL).fetch_one(&self.pool).await?;
        Ok(())
    }
}

/// Channel of [`Ledger::wake_starters`].
pub const START_CHANNEL: &str = "payments_accepted";

fn payment(row: PaymentInputRow) -> Result<Payment, LedgerError> {
    let unreadable = |column: &'static str, value: String| LedgerError::Unreadable {
        id: row.payment_id.clone(),
        column,
        value,
    };
    let payment_id = read_id(&row.payment_id)?;
    Ok(Payment {
        tx_id: TxId::derive(&payment_id),
        money: parse_currency(&row.currency)
            .and_then(|currency| Money::from_minor(row.amount_minor, currency))
            .map_err(|error| unreadable("amount_minor", error.to_string()))?,
        source_account: AccountId::new(row.source_account.as_str())
            .map_err(|error| unreadable("source_account", error.to_string()))?,
        profile: serde_json::from_value(row.profile.clone())
            .map_err(|error| unreadable("profile", error.to_string()))?,
        resume: u32::try_from(row.resume_count)
            .map_err(|error| unreadable("resume_count", error.to_string()))?,
        payment_id,
    })
}

fn read_id(text: &str) -> Result<PaymentId, LedgerError> {
    PaymentId::new(text).map_err(|_| LedgerError::Unreadable {
        id: text.to_owned(),
        column: "payment_id",
        value: text.to_owned(),
    })
}
