//! The statement: every finished transfer, regardless of the retention.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use serde::Serialize;

use super::ids::{Cursor, TransferId};
use super::page_lock;
use crate::settings::Coded;
use crate::state::Switch;
use crate::status::TransferStatus;

/// An entry of the statement. A returned transfer has two: SETTLED, then RETURNED. A switch that repeats entries lists each twice.
#[derive(Debug, Serialize)]
pub(crate) struct StatementEntry {
    cursor: Cursor,
    transfer_id: TransferId,
    /// `None` from a switch without keys.
    reference: Option<String>,
    status: TransferStatus,
    amount_minor: i64,
    currency: String,
    creditor_account: String,
    end_to_end_id: Option<String>,
    reason: Option<String>,
    /// Of a return by a message of its own; the amount is then the return's.
    #[serde(skip_serializing_if = "Option::is_none")]
    return_id: Option<String>,
    received_at: Timestamp,
    finished_at: Timestamp,
}

/// A page of the statement.
#[derive(Debug, Serialize)]
pub(crate) struct StatementPage {
    entries: Vec<Coded<StatementEntry>>,
    /// `after` of the next page; `None` if this page is not full.
    next: Option<Cursor>,
    /// On the switch's clock: a client that has read all pages has every transfer that ended before this time of the last
    /// page.
    complete_until: Timestamp,
}

/// Up to `limit` entries after the cursor; `None` is the start.
pub(crate) async fn page(
    switch: &Switch,
    after: Option<Cursor>,
    limit: i64,
) -> Result<StatementPage, sqlx::Error> {
    let mut tx = page_lock::begin_page_read(&switch.pool).await?;
    let current = switch.settings.current();
    let complete_until = current.statement_complete_until();
    let entries = sqlx::query_as!(
        StatementEntry,
        r#"SELECT s.cursor * 2 + repeat AS "cursor!: Cursor", s.transfer_id AS "transfer_id: TransferId",
                  CASE WHEN $3 THEN t.reference END AS reference, s.status AS "status: TransferStatus",
                  coalesce(r.amount_minor, t.amount_minor) AS "amount_minor!", t.currency AS "currency!",
                  t.creditor_account AS "creditor_account!", t.end_to_end_id, s.reason, s.return_id,
                  t.received_at, s.finished_at
           FROM statement s CROSS JOIN generate_series(0, $6::int) AS repeat
           JOIN transfers t ON t.id = s.transfer_id LEFT JOIN returns r ON r.return_id = s.return_id
           WHERE s.cursor >= $1::bigint / 2 AND s.cursor * 2 + repeat > $1 AND (s.finished_at < $4 OR $5)
           ORDER BY s.cursor, repeat LIMIT $2"#,
        after.map_or(0, |cursor| cursor.0),
        limit,
        current.shape.keys,
        complete_until.to_sqlx(),
        current.shape.statement_cycle_s == 0,
        i32::from(current.shape.statement_repeats),
    )
    .fetch_all(&mut *tx)
    .await?;
    let full = i64::try_from(entries.len()).is_ok_and(|rows| rows == limit);
    let next = entries.last().map(|entry| entry.cursor).filter(|_| full);
    let codes = current.shape.reject_codes;
    let coded = |entry: StatementEntry| Coded {
        reason_code: codes.of(entry.status, entry.reason.as_deref()),
        transfer: entry,
    };
    let entries = entries.into_iter().map(coded).collect();
    Ok(StatementPage { entries, next, complete_until })
}
