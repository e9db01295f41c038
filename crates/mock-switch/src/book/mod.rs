//! The switch's book: all SQL about transfers, recorded answers and callbacks.
//!
//! Submit, cancel, recall and the admin commands on one reference take one advisory lock, so that they are serialised; the
//! completion task locks the rows. The database enforces that a transfer ends once.

mod answers;
pub(crate) mod callbacks;
pub(crate) mod cancel;
pub(crate) mod completion;
pub(crate) mod ids;
pub(crate) mod listing;
mod page_lock;
pub(crate) mod read;
pub(crate) mod recall;
pub(crate) mod requests;
pub(crate) mod selector;
pub(crate) mod statement;
pub(crate) mod submit;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgExecutor, PgPool, PgTransaction};

use crate::settings::{Coded, RejectCodes};
use crate::state::Switch;
use crate::status::TransferStatus;
use ids::TransferId;
use selector::TransferSelector;

/// A transfer as clients see it. Skipped fields are internal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Transfer {
    #[serde(rename = "transfer_id")]
    pub(crate) id: TransferId,
    /// `None` from a switch without keys.
    pub(crate) reference: Option<String>,
    pub(crate) status: TransferStatus,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) tombstone: bool,
    #[serde(skip)]
    pub(crate) refused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) amount_minor: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) currency: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) creditor_account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_to_end_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip)]
    pub(crate) recall_refusal: Option<String>,
    /// Whether the receiving bank was asked to return the money.
    #[serde(skip)]
    pub(crate) recall_asked: bool,
    pub(crate) received_at: Timestamp,
}

impl Transfer {
    /// The transfer as a switch with these codes shows it.
    pub(crate) fn coded(self, codes: RejectCodes) -> Coded<Self> {
        Coded { reason_code: codes.of(self.status, self.reason.as_deref()), transfer: self }
    }
}

/// Begins a transaction with an exclusive lock on the reference and its transfers. Read the clock after it, because pages
/// report until which time they are complete.
pub(crate) async fn lock<'p>(pool: &'p PgPool, reference: &str) -> Result<PgTransaction<'p>, sqlx::Error> {
    let mut tx = pool.begin().await?;
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", reference)
        .execute(&mut *tx)
        .await?;
    // A separate statement, so that the next one sees what the completion task committed.
    sqlx::query_scalar!("SELECT id FROM transfers WHERE reference = $1 FOR UPDATE", reference)
        .fetch_all(&mut *tx)
        .await?;
    page_lock::lock_for_write(&mut tx).await?;
    Ok(tx)
}

/// The selected transfer; `None` if no transfer within the retention matches.
///
/// Only a switch that does not deduplicate has several transfers under one reference. Then a settled one takes precedence,
/// followed by a pending one.
pub(crate) async fn find(
    db: impl PgExecutor<'_>,
    selector: &TransferSelector,
    remembered_since: Timestamp,
) -> Result<Option<Transfer>, sqlx::Error> {
    sqlx::query_as!(
        Transfer,
        r#"SELECT id AS "id: TransferId", CASE WHEN $4 THEN reference END AS reference,
                  status AS "status: TransferStatus", tombstone, refused, amount_minor,
                  currency, creditor_account, end_to_end_id, reason, recall_refusal,
                  recall_asked_at IS NOT NULL AS "recall_asked!", received_at
           FROM transfers
           WHERE reference = $1 AND (NOT forgotten OR $5) AND received_at >= $2
             AND ($3::bigint IS NULL OR id = $3)
           -- A forgotten transfer goes on, and is ended before one that came later under its reference.
           ORDER BY forgotten AND status = 'PENDING' DESC, NOT forgotten AND status = 'SETTLED' DESC,
                    NOT forgotten AND status = 'PENDING' DESC, status = 'SETTLED' DESC, id DESC
           LIMIT 1"#,
        selector.reference,
        remembered_since.to_sqlx(),
        selector.id.map(|id| id.0),
        selector.shows_reference,
        selector.sees_forgotten,
    )
    .fetch_optional(db)
    .await
}

/// Forgets the reference's transfers, whose settlement goes on; false if it has none. A switch that fails over to a copy without them
/// answers so.
pub(crate) async fn forget_now(switch: &Switch, reference: &str) -> Result<bool, sqlx::Error> {
    let mut tx = lock(&switch.pool, reference).await?;
    let forgotten = forget(&mut tx, reference, Timestamp::MAX).await?;
    tx.commit().await?;
    Ok(forgotten > 0)
}

/// Marks the reference's transfers of before this time as forgotten, so that it can be used again.
async fn forget(db: &mut PgConnection, reference: &str, before: Timestamp) -> Result<u64, sqlx::Error> {
    let forgotten = sqlx::query!(
        "UPDATE transfers SET forgotten = true
         WHERE reference = $1 AND NOT forgotten AND received_at < $2",
        reference,
        before.to_sqlx(),
    )
    .execute(db)
    .await?;
    Ok(forgotten.rows_affected())
}
