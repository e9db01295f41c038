//! What our own books know of what was sent, for a switch that cannot be asked by our reference or is not asked first.

use payment_protocol::ids::PaymentId;
use payment_protocol::money::{Money, parse_currency};
use payment_protocol::port::ReconcileOutcome;
use payment_protocol::submit::LoggedSubmission;

use crate::row_lock::lock;
use crate::{Ledger, LedgerError, writes};

/// What a switch without references is asked by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentTransfer {
    /// The newest transfer to that account at the switch before ours was sent: ours comes after it. None when there
    /// was none, or nothing was sent.
    pub marker: Option<String>,
    /// What the switch calls our transfer, once it has told or ours was found.
    pub transfer_id: Option<String>,
    /// The account at the destination bank.
    pub destination_account: String,
    /// How much.
    pub money: Money,
}

impl Ledger {
    /// What the log says of the last attempt; none when none is on record. An attempt whose answer is unknown is as
    /// ambiguous as one that has none.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn logged(&self, payment_id: &PaymentId) -> Result<Option<LoggedSubmission>, LedgerError> {
        let last = sqlx::query!(
            "SELECT outcome, detail FROM submissions WHERE payment_id = $1 ORDER BY attempt DESC LIMIT 1",
            payment_id.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(last.map(|row| match row.outcome.as_deref() {
            Some("accepted") => LoggedSubmission::Accepted,
            Some("refused") => LoggedSubmission::Refused { reason: row.detail.unwrap_or_default() },
            _ => LoggedSubmission::Pending,
        }))
    }

    /// Looks for what became of a submit that gave no answer: the final_status, else the first FAILURE of the payment's own
    /// switch (S0.11).
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn reconcile_submission(
        &self,
        payment_id: &PaymentId,
    ) -> Result<ReconcileOutcome, LedgerError> {
        let row = sqlx::query!(
            r#"SELECT coalesce(p.final_status = 'settled', false) AS "settled!", c.event_id AS "failure?", c.reason AS "reason?"
               FROM payments p
               LEFT JOIN LATERAL (
                   SELECT event_id, reason FROM switch_callbacks c
                   WHERE c.payment_id = p.payment_id AND c.switch = p.switch AND c.status = 'FAILURE'
                   ORDER BY received_at, event_id LIMIT 1) c ON true
               WHERE p.payment_id = $1"#,
            payment_id.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or_else(|| LedgerError::UnknownPayment(payment_id.to_string()))?;
        Ok(match (row.settled, row.failure) {
            (true, _) => ReconcileOutcome::Settled,
            (false, Some(_)) => {
                ReconcileOutcome::Failed { reason: row.reason.unwrap_or_else(|| "no reason given".into()) }
            }
            (false, None) => ReconcileOutcome::Unknown,
        })
    }

    /// What the payment's transfer is asked by where the switch has no references.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn lookup_key(&self, payment_id: &PaymentId) -> Result<SentTransfer, LedgerError> {
        let row = sqlx::query!(
            r#"SELECT destination_account, amount_minor, currency,
                      (SELECT marker FROM submissions s WHERE s.payment_id = p.payment_id ORDER BY attempt LIMIT 1) AS marker,
                      (SELECT transfer_id FROM submissions s WHERE s.payment_id = p.payment_id AND transfer_id IS NOT NULL
                       ORDER BY attempt LIMIT 1) AS transfer_id
               FROM payments p WHERE payment_id = $1"#,
            payment_id.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or_else(|| LedgerError::UnknownPayment(payment_id.to_string()))?;
        Ok(SentTransfer {
            marker: row.marker,
            transfer_id: row.transfer_id,
            destination_account: row.destination_account,
            money: parse_currency(&row.currency)
                .and_then(|currency| Money::from_minor(row.amount_minor, currency))
                .map_err(|error| LedgerError::Unreadable {
                    id: payment_id.to_string(),
                    column: "amount_minor",
                    value: error.to_string(),
                })?,
        })
    }

    /// Notes what the switch calls the transfer, once it was found. The first name stands.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn note_transfer_id(
        &self,
        payment_id: &PaymentId,
        transfer_id: &str,
    ) -> Result<(), LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock(&mut tx, payment_id).await?;
        let noted = sqlx::query!(
            "UPDATE submissions s SET transfer_id = $2
             WHERE s.payment_id = $1
               AND s.attempt = (SELECT max(attempt) FROM submissions l WHERE l.payment_id = $1)
               AND NOT EXISTS (SELECT FROM submissions o WHERE o.payment_id = $1 AND o.transfer_id IS NOT NULL)",
            payment_id.as_str(),
            &*writes::storable(transfer_id),
        )
        .execute(&mut *tx)
        .await?;
        if noted.rows_affected() > 0 {
            let detail = format!("found at the switch as {transfer_id}");
            writes::timeline(&mut tx, payment_id, locked.facts.state, &detail).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}
