//! The switch's book: all SQL about transfers and what was answered for them.
//!
//! Submit, cancel, recall and the admin's decision on one reference take one
//! lock, so that they happen in some order; settlement locks the rows. That
//! a transfer ends once is enforced by the database below all of them.

pub(crate) mod cancel;
pub(crate) mod events;
pub(crate) mod finish;
pub(crate) mod ids;
pub(crate) mod listing;
pub(crate) mod named;
mod pages;
pub(crate) mod read;
pub(crate) mod recall;
pub(crate) mod requests;
pub(crate) mod statement;
pub(crate) mod submit;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool, PgTransaction};

use ids::TransferId;
use named::Named;

/// Where a transfer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Status {
    Pending,
    Settled,
    Rejected,
    Cancelled,
    Recalled,
}

impl Status {
    /// As it stands in the database.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Settled => "SETTLED",
            Self::Rejected => "REJECTED",
            Self::Cancelled => "CANCELLED",
            Self::Recalled => "RECALLED",
        }
    }
}

/// A transfer, as clients see it. What is skipped is for the switch alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Transfer {
    #[serde(rename = "transfer_id")]
    pub(crate) id: TransferId,
    /// None from a switch without keys.
    pub(crate) reference: Option<String>,
    pub(crate) status: Status,
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
    pub(crate) received_at: Timestamp,
}

/// Opens a transaction that has the reference for itself, settlement included.
/// The clock is to be read after it, for what pages tell of completeness.
pub(crate) async fn lock<'p>(pool: &'p PgPool, reference: &str) -> Result<PgTransaction<'p>, sqlx::Error> {
    let mut tx = pool.begin().await?;
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", reference)
        .execute(&mut *tx)
        .await?;
    // A statement of its own: the next one then sees what the settler committed.
    sqlx::query_scalar!("SELECT id FROM transfers WHERE reference = $1 FOR UPDATE", reference)
        .fetch_all(&mut *tx)
        .await?;
    pages::hold_open(&mut tx).await?;
    Ok(tx)
}

/// The transfer that is meant by a name, if it is remembered.
///
/// Only a switch that does not deduplicate has several under one reference; then
/// the one whose money left counts most, and one whose money may still leave
/// counts next.
pub(crate) async fn find(
    db: impl PgExecutor<'_>,
    named: &Named,
    remembered_since: Timestamp,
) -> Result<Option<Transfer>, sqlx::Error> {
    sqlx::query_as!(
        Transfer,
        r#"SELECT id AS "id: TransferId", CASE WHEN $4 THEN reference END AS reference,
                  status AS "status: Status", tombstone, refused, amount_minor,
                  currency, creditor_account, end_to_end_id, reason, recall_refusal, received_at
           FROM transfers
           WHERE reference = $1 AND NOT forgotten AND received_at >= $2
             AND ($3::bigint IS NULL OR id = $3)
           ORDER BY status = 'SETTLED' DESC, status = 'PENDING' DESC, id DESC
           LIMIT 1"#,
        named.reference,
        remembered_since.to_sqlx(),
        named.id.map(|id| id.0),
        named.keys,
    )
    .fetch_optional(db)
    .await
}

/// Makes room for a new transfer under a reference whose old ones are no
/// longer remembered.
async fn forget(db: &mut PgConnection, reference: &str, before: Timestamp) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE transfers SET forgotten = true
         WHERE reference = $1 AND NOT forgotten AND received_at < $2",
        reference,
        before.to_sqlx(),
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The request's idempotency key was used for another reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyReused;

/// The answer recorded under an idempotency key. One that speaks of a transfer
/// no longer remembered does not count, one that bound nobody only if `sticky`.
async fn recorded<A>(
    db: &mut PgConnection,
    operation: &str,
    key: &str,
    reference: &str,
    known: Option<&Transfer>,
    sticky: bool,
) -> Result<Result<Option<A>, KeyReused>, sqlx::Error>
where
    A: for<'de> Deserialize<'de> + Send + Unpin + 'static,
{
    let row = sqlx::query!(
        r#"SELECT reference, transfer_id AS "transfer_id: TransferId",
                  answer AS "answer: Json<serde_json::Value>"
           FROM answers WHERE operation = $1 AND idempotency_key = $2"#,
        operation,
        key,
    )
    .fetch_optional(db)
    .await?;
    let counts = |id: Option<TransferId>| match id {
        Some(id) => known.is_some_and(|transfer| transfer.id == id),
        None => sticky,
    };
    match row {
        Some(row) if row.reference != reference => Ok(Err(KeyReused)),
        Some(row) if counts(row.transfer_id) => {
            let answer =
                serde_json::from_value(row.answer.0).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
            Ok(Ok(Some(answer)))
        }
        _ => Ok(Ok(None)),
    }
}

/// Records an answer under its idempotency key; one without a transfer binds nobody.
async fn record<A: Serialize + Sync>(
    db: &mut PgConnection,
    operation: &str,
    key: &str,
    reference: &str,
    transfer_id: Option<TransferId>,
    answer: &A,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO answers (operation, idempotency_key, reference, transfer_id, answer)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (operation, idempotency_key)
         DO UPDATE SET reference = excluded.reference, transfer_id = excluded.transfer_id,
                       answer = excluded.answer",
        operation,
        key,
        reference,
        transfer_id.map(|id| id.0),
        Json(answer) as _,
    )
    .execute(db)
    .await?;
    Ok(())
}
