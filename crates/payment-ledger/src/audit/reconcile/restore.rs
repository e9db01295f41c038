//! After a restored backup, or a failover to a standby that lacked confirmed commits: marks the open payments, so that nothing
//! that the record lacks is taken for what never happened, and finds what the record lacks.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use payment_protocol::drift::Drift;
use serde::Serialize;

use super::findings::Finding;
use super::holds::{OpenPayment, is_last};
use crate::{Ledger, LedgerError};

/// A transfer in a switch's statement for a payment without a recorded attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnrecordedTransfer {
    /// The payment.
    pub payment_id: String,
    /// The payment's state.
    pub state: String,
    /// The switch.
    pub switch: String,
    /// The switch's id of the transfer.
    pub transfer_id: String,
    /// The status of the transfer in the statement.
    pub status: String,
}

/// One page of a scan of statement lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnrecordedTransfers {
    /// Transfers of the page.
    pub transfers: Vec<UnrecordedTransfer>,
    /// The last line of the page; `None` if there was no line.
    pub last: Option<i64>,
}

/// A payment that ended without a recorded attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndedWithoutAttempt {
    /// The payment.
    pub payment_id: String,
    /// The final state.
    pub state: String,
    /// Its switch.
    pub switch: String,
    /// When it ended.
    pub ended_at: Timestamp,
}

impl Ledger {
    /// Marks every open payment whose attempts may be missing from the record, because the database may have lost commits after
    /// `since`; returns how many were not marked before. An open payment was open at `since` or was accepted later. One that has
    /// ended is complete in a database that lost its last commits, so it is not marked. A payment that is accepted during the
    /// call may be marked.
    ///
    /// The payments are marked in batches, each a transaction. After an error the call is repeated, and marks the others.
    ///
    /// # Errors
    /// [`LedgerError`]; what was marked before stays marked.
    pub async fn mark_open_payments(&self, since: Timestamp) -> Result<u64, LedgerError> {
        let called_at = sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "at!: jiff_sqlx::Timestamp""#)
            .fetch_one(&self.pool)
            .await?;
        let detail = format!(
            "the database may have lost commits since {since}: attempts may be missing from the record"
        );
        let mut marked = 0;
        loop {
            let mut after: Option<OpenPayment> = None;
            loop {
                let batch = self.open_payments(after.as_ref()).await?;
                let ids: Vec<&str> = batch.iter().map(|row| row.payment_id.as_str()).collect();
                marked += self.mark_batch(&ids, &detail).await?;
                if is_last(&batch) {
                    break;
                }
                after = batch.into_iter().next_back();
            }
            // A payment that changed its state meanwhile may have been passed over.
            if !self.has_unmarked(called_at).await? {
                self.mint_lost_ids().await?;
                return Ok(marked);
            }
        }
    }

    /// Whether an open payment that was accepted before `called_at` is not marked. One statement sees each payment once, so no
    /// change of state hides one.
    async fn has_unmarked(&self, called_at: jiff_sqlx::Timestamp) -> Result<bool, LedgerError> {
        Ok(sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM payments
                              WHERE ended_at IS NULL AND NOT attempts_uncertain AND accepted_at <= $1) AS "unmarked!""#,
            called_at as _,
        )
        .fetch_one(&self.pool)
        .await?)
    }

    async fn mark_batch(&self, payment_ids: &[&str], detail: &str) -> Result<u64, LedgerError> {
        // `coalesce` fits no index of open payments, which the planner takes for empty while its statistics are old.
        let marked = sqlx::query!(
            "WITH marked AS (
                 UPDATE payments SET attempts_uncertain = true
                 WHERE payment_id = ANY ($1) AND coalesce(ended_at, 'infinity') = 'infinity' AND NOT attempts_uncertain
                 RETURNING payment_id, state)
             INSERT INTO timeline (payment_id, state, detail, is_internal) SELECT payment_id, state, $2, true FROM marked",
            payment_ids as &[&str],
            detail,
        )
        .execute(&self.pool)
        .await?;
        Ok(marked.rows_affected())
    }

    /// At most `limit` payments that ended at or after `since` without a recorded attempt, oldest end first: before they were
    /// marked, such an end may have taken a lost attempt for a transfer that was never sent.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn ended_without_attempt(
        &self,
        since: Timestamp,
        limit: i64,
    ) -> Result<Vec<EndedWithoutAttempt>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT payment_id, state, switch, ended_at AS "ended_at!: jiff_sqlx::Timestamp" FROM payments
               WHERE ended_at >= $1 AND attempts = 0 ORDER BY ended_at LIMIT $2"#,
            since.to_sqlx() as _,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| EndedWithoutAttempt {
                payment_id: row.payment_id,
                state: row.state,
                switch: row.switch,
                ended_at: row.ended_at.to_jiff(),
            })
            .collect())
    }

    /// The first statement line that was read at or after `since`; `None` without one. A line that was read before belongs
    /// to a payment whose attempt was recorded before.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn first_line_since(&self, since: Timestamp) -> Result<Option<i64>, LedgerError> {
        Ok(sqlx::query_scalar!(
            "SELECT min(first.line_id) FROM statement_cursors c
             CROSS JOIN LATERAL (SELECT line_id FROM statement_lines l WHERE l.switch = c.switch AND l.read_at >= $1
                                 ORDER BY l.read_at LIMIT 1) AS first",
            since.to_sqlx() as _,
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// Transfers of payments without a recorded attempt, among at most `limit` statement lines after `after`; not of a payment
    /// whose final status agrees with the line, since the switch was asked about it. A transfer without a reference is matched
    /// by its attempt alone: without it, a reconciliation run finds a transfer without a payment.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn transfers_without_attempt(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<UnrecordedTransfers, LedgerError> {
        // LATERAL with OFFSET 0 keeps the planner at one index probe per line.
        let rows = sqlx::query!(
            r#"SELECT l.line_id, l.switch, l.transfer_id, l.status, p.payment_id AS "payment_id?", p.state AS "state?"
               FROM (SELECT * FROM statement_lines WHERE line_id > $1 ORDER BY line_id LIMIT $2) AS l
               LEFT JOIN LATERAL (
                   SELECT payment_id, state FROM payments
                   WHERE (tx_id = split_part(l.reference, ':', 1) AND l.reference = tx_id || ':submit'
                          OR rail_id = l.reference)
                     AND switch = l.switch AND attempts = 0
                     AND (final_status IS NULL
                          OR final_status NOT IN ('returned', CASE l.status WHEN 'SETTLED' THEN 'settled' ELSE 'void' END))
                   OFFSET 0) AS p ON true
               ORDER BY l.line_id"#,
            after,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let last = rows.last().map(|row| row.line_id);
        let transfers = rows
            .into_iter()
            .filter_map(|row| {
                Some(UnrecordedTransfer {
                    payment_id: row.payment_id?,
                    state: row.state?,
                    switch: row.switch,
                    transfer_id: row.transfer_id,
                    status: row.status,
                })
            })
            .collect();
        Ok(UnrecordedTransfers { transfers, last })
    }

    /// A finding for each of these workflows that have ended whose payment has no row.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn ended_workflows_without_payment(
        &self,
        workflow_ids: &[String],
    ) -> Result<Vec<Finding>, LedgerError> {
        let unknown = sqlx::query_scalar!(
            r#"SELECT w.workflow_id AS "workflow_id!" FROM unnest($1::text[]) AS w (workflow_id)
               WHERE NOT EXISTS (SELECT FROM payments p WHERE p.payment_id = split_part(w.workflow_id, ':', 1) OFFSET 0)
               ORDER BY w.workflow_id"#,
            workflow_ids,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(unknown
            .into_iter()
            .map(|workflow_id| {
                let detail = format!("workflow {workflow_id} has ended, and its payment has no row");
                Finding::without_payment(Drift::WorkflowWithoutPayment, workflow_id, detail)
            })
            .collect())
    }
}
