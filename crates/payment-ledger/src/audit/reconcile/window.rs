//! Which payments does a reconciliation run with a window compare?
//!
//! Those that are open, or of which the journal or a statement has something new since the window began. They are read in three parts,
//! so that no statement grows with the window, and each payment is in one of them:
//!
//! 1. the journal's reserves, debits and releases: the payments that were reserved in the window, or ended in it;
//! 2. the run's list: what else was open when the run began, or was corrected, restored or returned;
//! 3. the statements' lines: what else a switch reported.
//!
//! What changed nowhere since is left to the runs without a window.

use jiff_sqlx::ToSqlx as _;
use payment_protocol::ids::PaymentId;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::ReconciliationRunId;
use crate::stored_id::read_id;
use crate::{Ledger, LedgerError};

/// The part of the history that a run reads, by the numbers of its first and last records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconciliationWindow {
    /// When it began.
    pub since: jiff::Timestamp,
    /// The last journal entry before it; 0 if there is none.
    pub after_entry_id: i64,
    /// The last journal entry in it.
    pub last_entry_id: i64,
    /// The last statement line before it; 0 if there is none.
    pub after_line_id: i64,
    /// The last sealed batch before it; 0 if there is none.
    pub after_batch: i64,
}

/// Payments to compare, and where their part goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowPage {
    /// The payments, in no order.
    pub payments: Vec<PaymentId>,
    /// The next record's number is greater than this one; `None` after the part's last record.
    pub next: Option<i64>,
}

/// The window of this many seconds that ends now.
pub(super) async fn window(tx: &mut PgConnection, seconds: i64) -> Result<ReconciliationWindow, LedgerError> {
    let since = sqlx::query_scalar!(
        r#"SELECT clock_timestamp() - $1 * interval '1 second' AS "since!: jiff_sqlx::Timestamp""#,
        seconds as f64
    )
    .fetch_one(&mut *tx)
    .await?
    .to_jiff();
    // Entries and batches are read from the newest back to the beginning of the window. The index of entries by time would be read from
    // its own beginning, so the condition is one that it does not answer.
    let row = sqlx::query!(
        r#"SELECT coalesce((SELECT max(entry_id) FROM journal), 0) AS "last_entry_id!",
                  coalesce((SELECT entry_id FROM journal WHERE $1 - posted_at > interval '0' ORDER BY entry_id DESC LIMIT 1), 0) AS "after_entry_id!",
                  coalesce((SELECT min(l.line_id) - 1 FROM statement_cursors c CROSS JOIN LATERAL (
                                SELECT line_id FROM statement_lines s WHERE s.switch = c.switch AND s.read_at >= $1
                                ORDER BY read_at, line_id LIMIT 1) AS l),
                           (SELECT max(line_id) FROM statement_lines), 0) AS "after_line_id!",
                  coalesce((SELECT batch FROM seal_batches WHERE sealed_at < $1 ORDER BY batch DESC LIMIT 1), 0) AS "after_batch!""#,
        since.to_sqlx() as jiff_sqlx::Timestamp,
    )
    .fetch_one(&mut *tx)
    .await?;
    Ok(ReconciliationWindow {
        since,
        after_entry_id: row.after_entry_id,
        last_entry_id: row.last_entry_id,
        after_line_id: row.after_line_id,
        after_batch: row.after_batch,
    })
}

/// Lists what is open, and what was corrected, restored or returned in the window, unless it was reserved in it.
pub(super) async fn list(
    tx: &mut PgConnection,
    run: ReconciliationRunId,
    window: &ReconciliationWindow,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "INSERT INTO reconciled_payments (reconciliation_id, payment_id)
         SELECT $1, payment_id FROM (
             SELECT payment_id FROM payments WHERE ended_at IS NULL
             UNION
             SELECT payment_id FROM journal
             WHERE entry_id > $2 AND entry_id <= $3 AND payment_id IS NOT NULL AND kind NOT IN ('reserve', 'debit', 'release')) AS p
         WHERE NOT EXISTS (SELECT FROM journal r
                           WHERE r.payment_id = p.payment_id AND r.kind = 'reserve' AND r.entry_id > $2 AND r.entry_id <= $3)",
        run.0,
        window.after_entry_id,
        window.last_entry_id,
    )
    .execute(tx)
    .await?;
    Ok(())
}

impl Ledger {
    /// The first part: payments among at most `limit` entries after the entry `after`.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn payments_of_entries(
        &self,
        run: ReconciliationRunId,
        window: &ReconciliationWindow,
        after: i64,
        limit: i64,
    ) -> Result<WindowPage, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT j.entry_id, j.payment_id,
                      (j.kind = 'reserve'
                       OR (j.kind IN ('debit', 'release')
                           AND NOT EXISTS (SELECT FROM reconciled_payments l
                                           WHERE l.reconciliation_id = $1 AND l.payment_id = j.payment_id)
                           AND NOT EXISTS (SELECT FROM journal r
                                           WHERE r.payment_id = j.payment_id AND r.kind = 'reserve' AND r.entry_id > $2)))
                          AS "is_first!"
               FROM (SELECT * FROM journal WHERE entry_id > $3 AND entry_id <= $4 ORDER BY entry_id LIMIT $5) AS j
               ORDER BY j.entry_id"#,
            run.0,
            window.after_entry_id,
            after,
            window.last_entry_id,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let next = rows.last().map(|row| row.entry_id);
        let first = rows.into_iter().filter(|row| row.is_first).filter_map(|row| row.payment_id);
        Ok(WindowPage { payments: first.map(|id| read_id(&id)).collect::<Result<_, _>>()?, next })
    }

    /// The second part: at most `limit` payments of the run's list after the payment `after`, in the order of their ids.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn listed_payments(
        &self,
        run: ReconciliationRunId,
        after: Option<&PaymentId>,
        limit: i64,
    ) -> Result<Vec<PaymentId>, LedgerError> {
        let ids = sqlx::query_scalar!(
            "SELECT payment_id FROM reconciled_payments WHERE reconciliation_id = $1 AND payment_id > $2
             ORDER BY payment_id LIMIT $3",
            run.0,
            after.map_or("", PaymentId::as_str),
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        ids.iter().map(|id| read_id(id)).collect()
    }

    /// The third part: payments among at most `limit` statement lines after the line `after`.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn payments_of_lines(
        &self,
        run: ReconciliationRunId,
        window: &ReconciliationWindow,
        after: i64,
        limit: i64,
    ) -> Result<WindowPage, LedgerError> {
        // OFFSET 0: each line looks its payment up, instead of all payments being read for all lines.
        let rows = sqlx::query!(
            r#"SELECT l.line_id, p.payment_id AS "payment_id?"
               FROM (SELECT * FROM statement_lines WHERE line_id > $3 ORDER BY line_id LIMIT $4) AS l
               LEFT JOIN LATERAL (
                   SELECT payment_id FROM (
                       SELECT payment_id FROM payments
                       WHERE tx_id = split_part(l.reference, ':', 1) AND switch = l.switch AND l.reference = tx_id || ':submit'
                       UNION
                       SELECT payment_id FROM payments WHERE rail_id = l.reference AND switch = l.switch
                       UNION
                       SELECT m.payment_id FROM submissions m JOIN payments USING (payment_id)
                       WHERE m.transfer_id = l.transfer_id AND switch = l.switch OFFSET 0) AS of_line
                   WHERE NOT EXISTS (SELECT FROM statement_lines earlier
                                     WHERE earlier.switch = l.switch AND earlier.transfer_id = l.transfer_id
                                       AND earlier.line_id > $2 AND earlier.line_id < l.line_id)
                     AND NOT EXISTS (SELECT FROM reconciled_payments listed
                                     WHERE listed.reconciliation_id = $1 AND listed.payment_id = of_line.payment_id)
                     AND NOT EXISTS (SELECT FROM journal j
                                     WHERE j.payment_id = of_line.payment_id AND j.kind = 'reserve' AND j.entry_id > $5)
                     AND NOT EXISTS (SELECT FROM journal j
                                     WHERE j.payment_id = of_line.payment_id AND j.kind IN ('debit', 'release')
                                       AND j.entry_id > $5)) AS p ON true
               ORDER BY l.line_id"#,
            run.0,
            window.after_line_id,
            after,
            limit,
            window.after_entry_id,
        )
        .fetch_all(&self.pool)
        .await?;
        let next = rows.last().map(|row| row.line_id);
        let mut ids: Vec<String> = rows.into_iter().filter_map(|row| row.payment_id).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(WindowPage { payments: ids.iter().map(|id| read_id(id)).collect::<Result<_, _>>()?, next })
    }
}
