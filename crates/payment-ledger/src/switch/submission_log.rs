//! The submission log: answers from our own record, for a switch that cannot be queried by reference or is not queried first.

use payment_protocol::ids::PaymentId;
use payment_protocol::money::{Money, parse_currency};
use payment_protocol::port::ReconcileOutcome;
use payment_protocol::submit::LoggedSubmission;
use postgres_kit::text::replace_nul;

use crate::row_lock::lock_payment;
use crate::{Ledger, LedgerError, writes};

/// The data by which a transfer is found at a switch without references, or in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupKey {
    /// At a switch without references: the newest transfer to the account before our first attempt; ours is newer. `None` if there
    /// was no transfer, or nothing was sent.
    ///
    /// At any other switch: the newest position of the statement that is on record from before our first attempt, by the attempt
    /// itself or by reconciliation; an entry about ours is after it. `None` if no position is on record.
    pub marker: Option<String>,
    /// The switch's id of the transfer, once it is known.
    pub transfer_id: Option<String>,
    /// The account at the destination bank.
    pub destination_account: String,
    /// The amount.
    pub money: Money,
}

impl Ledger {
    /// The recorded outcome of the last attempt; `None` if no attempt is recorded. An unknown outcome is as ambiguous as
    /// none.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn last_submission(
        &self,
        payment_id: &PaymentId,
    ) -> Result<Option<LoggedSubmission>, LedgerError> {
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

    /// Looks for the outcome of a submit without an answer: the final status, else the first FAILURE of the payment's own
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

    /// The lookup key of the payment's transfer at a switch without references, or in a statement. `name`: the transfer's name in the
    /// switch's messages. The statement is read from a position before its first entry of that name: of a payment that was lost and accepted
    /// again, the entry of the first transfer may be older than the acceptance.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn lookup_key(&self, payment_id: &PaymentId, name: &str) -> Result<LookupKey, LedgerError> {
        let row = sqlx::query!(
                r#"SELECT destination_account, amount_minor, currency,
                          -- Where the end of the payment may be lost, another one may have sent to its account since.
                          CASE WHEN p.needs_account_lock THEN CASE WHEN NOT p.attempts_uncertain THEN f.marker END
                          -- Reconciliation has not read so far: the recorded position is newer than its lines.
                          WHEN own.line_id IS NULL AND bound.by_attempt AND f.marker IS NOT NULL
                               AND NOT EXISTS (SELECT FROM statement_lines l WHERE l.switch = p.switch AND l.cursor = f.marker)
                          THEN f.marker
                          ELSE (SELECT l.cursor FROM statement_lines l
                                WHERE l.line_id = greatest(
                                    (SELECT m.line_id FROM statement_lines m
                                     WHERE m.switch = p.switch AND m.cursor = f.marker AND bound.by_attempt
                                       AND m.line_id < coalesce(own.line_id, 9223372036854775807)),
                                    (SELECT r.line_id FROM statement_lines r
                                     WHERE r.switch = p.switch
                                       AND r.read_at < least(own.read_at, CASE WHEN bound.by_attempt THEN coalesce(f.recorded_at, now())
                                                                               ELSE p.accepted_at END)
                                       AND r.line_id < coalesce(own.line_id, 9223372036854775807)
                                     ORDER BY r.read_at DESC, r.line_id DESC LIMIT 1))) END AS marker,
                          (SELECT (array_agg(transfer_id ORDER BY attempt) FILTER (WHERE transfer_id IS NOT NULL))[1]
                           FROM submissions s WHERE s.payment_id = p.payment_id) AS transfer_id
                   FROM payments p JOIN switch_profiles a USING (profile_hash)
                   LEFT JOIN LATERAL (SELECT marker, recorded_at FROM submissions s WHERE s.payment_id = p.payment_id
                                      ORDER BY attempt LIMIT 1) AS f ON true
                   -- Only the acceptance is a bound where an earlier attempt may have lost its record, and where the absence of every entry
                   -- is a proof.
                   CROSS JOIN LATERAL (SELECT NOT p.attempts_uncertain AND NOT a.profile ? 'settled_within_ms' AS by_attempt) AS bound
                   -- OFFSET 0 keeps the planner at the index by reference.
                   LEFT JOIN LATERAL (SELECT line_id, read_at
                                      FROM (SELECT line_id, read_at FROM statement_lines
                                            WHERE switch = p.switch AND reference = $2 OFFSET 0) AS named
                                      ORDER BY line_id LIMIT 1) AS own ON true
                   WHERE p.payment_id = $1"#,
                payment_id.as_str(),
                name,
            )
            .fetch_optional(&self.pool)
            .await?
            .ok_or_else(|| LedgerError::UnknownPayment(payment_id.to_string()))?;
        Ok(LookupKey {
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

    /// Records the switch's id of the transfer that a lookup found, before anything is concluded from it or done to it. The first id is
    /// kept. Returns the recorded id; `None` if no id is recorded and the payment has ended: then another payment may use the account, and
    /// the transfer may be that payment's. While the payment is open, no other payment can have sent to the account.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn record_transfer_id(
        &self,
        payment_id: &PaymentId,
        transfer_id: &str,
    ) -> Result<Option<String>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        let recorded = sqlx::query_scalar!(
            "SELECT (array_agg(transfer_id ORDER BY attempt) FILTER (WHERE transfer_id IS NOT NULL))[1]
             FROM submissions WHERE payment_id = $1",
            payment_id.as_str(),
        )
        .fetch_one(&mut *tx)
        .await?;
        if recorded.is_some() || locked.facts.state.end().is_some() {
            return Ok(recorded);
        }
        let transfer_id = replace_nul(transfer_id);
        let updated = sqlx::query!(
            "UPDATE submissions s SET transfer_id = $2
             WHERE s.payment_id = $1 AND s.attempt = (SELECT max(attempt) FROM submissions l WHERE l.payment_id = $1)",
            payment_id.as_str(),
            &*transfer_id,
        )
        .execute(&mut *tx)
        .await?;
        if updated.rows_affected() == 0 {
            return Ok(None);
        }
        let detail = format!("found at the switch as {transfer_id}");
        writes::append_timeline(&mut tx, payment_id, locked.facts.state, &detail).await?;
        tx.commit().await?;
        Ok(Some(transfer_id.into_owned()))
    }
}
