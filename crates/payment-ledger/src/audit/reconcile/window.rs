//! Which payments does a reconciliation run with a window compare?
//!
//! Those that are open, or of which the journal or a statement has something new since the window began. They are read in three parts,
//! in pages, and each payment is in one of them:
//!
//! 1. the journal's reserves, debits and releases: the payments that were reserved in the window, or ended in it;
//! 2. the run's list: what else was open when the run began, or was corrected, restored or returned;
//! 3. the statements' lines: what else a switch reported.
//!
//! What changed nowhere since is left to the runs without a window.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use jiff_sqlx::ToSqlx as _;
use payment_protocol::ids::PaymentId;
use postgres_kit::Connection;
use serde::{Deserialize, Serialize};

use super::ReconciliationRunId;
use crate::stored_id::read_id;
use crate::{Ledger, LedgerError};

/// The part of the history that a run reads, by the numbers of its first and last records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconciliationWindow {
    /// When it began.
    pub since: jiff::Timestamp,
    /// The last journal entry before it; 0 without one.
    pub after_entry_id: i64,
    /// The last journal entry in it.
    pub last_entry_id: i64,
    /// The last statement line before it; 0 without one.
    pub after_line_id: i64,
    /// The last sealed batch before it; 0 without one.
    pub after_batch: i64,
}

/// Payments to compare, and where their part goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowPage {
    /// The payments, in the order of their ids.
    pub payments: Vec<PaymentId>,
    /// The next record's number is greater than this one; `None` after the part's last record.
    pub next: Option<i64>,
}

impl WindowPage {
    /// A page of these payments, each once.
    fn new(ids: impl Iterator<Item = String>, next: Option<i64>) -> Result<Self, LedgerError> {
        let ids: BTreeSet<String> = ids.collect();
        Ok(Self { payments: ids.iter().map(|id| read_id(id)).collect::<Result<_, _>>()?, next })
    }
}

/// Payments listed in one statement.
const LISTED_AT_ONCE: i64 = 10_000;
/// An entry's number may be taken this long before its time.
const NUMBERED_BEFORE: SignedDuration = SignedDuration::from_secs(60);

/// The window of this many seconds that ends now.
pub(super) async fn window(tx: &mut Connection, seconds: i64) -> Result<ReconciliationWindow, LedgerError> {
    let since = sqlx::query_scalar!(
        r#"SELECT clock_timestamp() - $1 * interval '1 second' AS "since!: jiff_sqlx::Timestamp""#,
        seconds as f64
    )
    .fetch_one(&mut *tx)
    .await?
    .to_jiff();
    let last_entry_id =
        sqlx::query_scalar!(r#"SELECT coalesce(max(entry_id), 0) AS "entry_id!" FROM journal"#)
            .fetch_one(&mut *tx)
            .await?;
    let row = sqlx::query!(
        r#"SELECT coalesce((SELECT min(l.line_id) - 1 FROM statement_cursors c CROSS JOIN LATERAL (
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
        after_entry_id: last_entry_before(tx, since - NUMBERED_BEFORE, last_entry_id).await?,
        last_entry_id,
        after_line_id: row.after_line_id,
        after_batch: row.after_batch,
    })
}

/// The last journal entry before `time`, by bisection: the entries have no index by their time, and are in its order.
async fn last_entry_before(
    tx: &mut Connection,
    time: jiff::Timestamp,
    last_entry_id: i64,
) -> Result<i64, LedgerError> {
    // The entry `before` is before the time, and none after `since` is.
    let (mut before, mut since) = (0, last_entry_id);
    while before < since {
        let middle = before + (since - before) / 2;
        let next = sqlx::query!(
            r#"SELECT entry_id, posted_at < $2 AS "is_before!" FROM journal WHERE entry_id > $1 ORDER BY entry_id LIMIT 1"#,
            middle,
            time.to_sqlx() as jiff_sqlx::Timestamp,
        )
        .fetch_optional(&mut *tx)
        .await?;
        match next {
            Some(entry) if entry.is_before => before = entry.entry_id,
            _ => since = middle,
        }
    }
    Ok(before)
}

/// Lists what is open, unless it was reserved in the window.
pub(super) async fn list(
    tx: &mut Connection,
    run: ReconciliationRunId,
    window: &ReconciliationWindow,
) -> Result<(), LedgerError> {
    let (mut tenant_id, mut state, mut payment_id) = (String::new(), String::new(), String::new());
    let mut accepted_at = jiff::Timestamp::UNIX_EPOCH.to_sqlx();
    loop {
        let last = sqlx::query!(
            r#"WITH page AS (
                   SELECT tenant_id, state, accepted_at, payment_id FROM payments
                   WHERE ended_at IS NULL AND (tenant_id, state, accepted_at, payment_id) > ($2, $3, $4, $5)
                   ORDER BY tenant_id, state, accepted_at, payment_id LIMIT $6),
               listed AS (
                   INSERT INTO reconciled_payments (reconciliation_id, payment_id)
                   SELECT $1, payment_id FROM page p
                   WHERE NOT EXISTS (SELECT FROM journal r
                                     WHERE r.payment_id = p.payment_id AND r.kind = 'reserve'
                                       AND r.entry_id > $7 AND r.entry_id <= $8))
               SELECT tenant_id, state, accepted_at AS "accepted_at: jiff_sqlx::Timestamp", payment_id FROM page
               ORDER BY tenant_id DESC, state DESC, accepted_at DESC, payment_id DESC LIMIT 1"#,
            run.0,
            tenant_id,
            state,
            accepted_at as jiff_sqlx::Timestamp,
            payment_id,
            LISTED_AT_ONCE,
            window.after_entry_id,
            window.last_entry_id,
        )
        .fetch_optional(&mut *tx)
        .await?;
        let Some(last) = last else { return Ok(()) };
        (tenant_id, state, accepted_at, payment_id) =
            (last.tenant_id, last.state, last.accepted_at, last.payment_id);
    }
}

impl Ledger {
    /// The first part: payments among at most `limit` entries after the entry `after`. A payment with another entry, and neither a
    /// reserve, a debit nor a release in the window, is added to the run's list.
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
            r#"WITH page AS (
                   SELECT e.entry_id, e.payment_id, e.kind,
                          EXISTS (SELECT FROM journal r
                                  WHERE r.payment_id = e.payment_id AND r.kind = 'reserve'
                                    AND r.entry_id > $2 AND r.entry_id <= $4) AS was_reserved
                   FROM (SELECT * FROM journal WHERE entry_id > $3 AND entry_id <= $4 ORDER BY entry_id LIMIT $5) AS e),
               listed AS (
                   INSERT INTO reconciled_payments (reconciliation_id, payment_id)
                   SELECT DISTINCT $1::bigint, payment_id FROM page
                   WHERE payment_id IS NOT NULL AND kind NOT IN ('reserve', 'debit', 'release') AND NOT was_reserved
                     AND NOT EXISTS (SELECT FROM journal j
                                     WHERE j.payment_id = page.payment_id AND j.kind IN ('debit', 'release')
                                       AND j.entry_id > $2 AND j.entry_id <= $4)
                   ON CONFLICT DO NOTHING)
               SELECT entry_id AS "entry_id!", payment_id,
                      ((kind = 'reserve' OR (kind IN ('debit', 'release') AND NOT was_reserved))
                       AND NOT EXISTS (SELECT FROM reconciled_payments l
                                       WHERE l.reconciliation_id = $1 AND l.payment_id = page.payment_id)) AS "is_first!"
               FROM page ORDER BY entry_id"#,
            run.0,
            window.after_entry_id,
            after,
            window.last_entry_id,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let next = rows.last().map(|row| row.entry_id);
        let first = rows.into_iter().filter(|row| row.is_first);
        WindowPage::new(first.filter_map(|row| row.payment_id), next)
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
                       WHERE m.transfer_id = l.transfer_id AND l.reference IS NULL AND switch = l.switch OFFSET 0) AS of_line
                   WHERE NOT EXISTS (SELECT FROM statement_lines earlier
                                     WHERE earlier.switch = l.switch AND earlier.transfer_id = l.transfer_id
                                       AND earlier.reference IS NULL AND l.reference IS NULL
                                       AND earlier.line_id > $2 AND earlier.line_id < l.line_id)
                     AND NOT EXISTS (SELECT FROM statement_lines earlier
                                     WHERE earlier.switch = l.switch AND earlier.reference = l.reference
                                       AND earlier.line_id > $2 AND earlier.line_id < l.line_id)
                     AND NOT EXISTS (SELECT FROM reconciled_payments listed
                                     WHERE listed.reconciliation_id = $1 AND listed.payment_id = of_line.payment_id)
                     AND NOT EXISTS (SELECT FROM journal j
                                     WHERE j.payment_id = of_line.payment_id AND j.kind = 'reserve'
                                       AND j.entry_id > $5 AND j.entry_id <= $6)
                     AND NOT EXISTS (SELECT FROM journal j
                                     WHERE j.payment_id = of_line.payment_id AND j.kind IN ('debit', 'release')
                                       AND j.entry_id > $5 AND j.entry_id <= $6)) AS p ON true
               ORDER BY l.line_id"#,
            run.0,
            window.after_line_id,
            after,
            limit,
            window.after_entry_id,
            window.last_entry_id,
        )
        .fetch_all(&self.pool)
        .await?;
        let next = rows.last().map(|row| row.line_id);
        WindowPage::new(rows.into_iter().filter_map(|row| row.payment_id), next)
    }
}
