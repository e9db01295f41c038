//! The statement: every end of a transfer, for ever, whatever the retention.

use jiff::Timestamp;
use serde::Serialize;

use super::ids::{Cursor, TransferId};
use super::{Status, pages};
use crate::switch::Switch;

/// One end of a transfer. A recalled one has two: its settlement, then its return.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    cursor: Cursor,
    transfer_id: TransferId,
    /// None from a switch without keys.
    reference: Option<String>,
    status: Status,
    amount_minor: i64,
    currency: String,
    creditor_account: String,
    end_to_end_id: Option<String>,
    reason: Option<String>,
    received_at: Timestamp,
    finished_at: Timestamp,
}

/// A page of the statement.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    entries: Vec<Entry>,
    /// `after` of the next page, if this one was full.
    next: Option<Cursor>,
    /// On the switch's clock: who has read on until `next` was null has read
    /// every end that came before the last page's moment.
    complete_until: Timestamp,
}

/// Up to `limit` entries after the cursor, or from the beginning.
pub(crate) async fn page(switch: &Switch, after: Option<Cursor>, limit: i64) -> Result<Page, sqlx::Error> {
    let mut tx = pages::turn(&switch.pool).await?;
    let current = switch.settings.current();
    let complete_until = current.now();
    let entries = sqlx::query_as!(
        Entry,
        r#"SELECT s.cursor AS "cursor: Cursor", s.transfer_id AS "transfer_id: TransferId",
                  CASE WHEN $3 THEN t.reference END AS reference, s.status AS "status: Status",
                  t.amount_minor AS "amount_minor!", t.currency AS "currency!",
                  t.creditor_account AS "creditor_account!", t.end_to_end_id, s.reason,
                  t.received_at, s.finished_at
           FROM statement s JOIN transfers t ON t.id = s.transfer_id
           WHERE s.cursor > $1
           ORDER BY s.cursor LIMIT $2"#,
        after.map_or(0, |cursor| cursor.0),
        limit,
        current.shape.keys,
    )
    .fetch_all(&mut *tx)
    .await?;
    let full = i64::try_from(entries.len()).is_ok_and(|rows| rows == limit);
    let next = entries.last().map(|entry| entry.cursor).filter(|_| full);
    Ok(Page { entries, next, complete_until })
}
