//! The book as an auditor reads it: everything, forgotten or not.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use serde::{Serialize, Serializer};
use sqlx::PgPool;
use sqlx::types::Json;
use uuid::Uuid;

use super::Status;

/// A time that may not have come.
type Moment = Option<jiff_sqlx::Timestamp>;

/// One row of the book.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    /// Grows with every row; pages go by it.
    pub(crate) id: i64,
    reference: String,
    status: Status,
    tombstone: bool,
    /// Refused in the answer to its submit.
    refused: bool,
    deduplicated: bool,
    /// No longer answered for.
    forgotten: bool,
    amount_minor: Option<i64>,
    currency: Option<String>,
    creditor_account: Option<String>,
    end_to_end_id: Option<String>,
    reason: Option<String>,
    recall_refusal: Option<String>,
    received_at: Timestamp,
    #[serde(serialize_with = "moment")]
    deadline: Moment,
    #[serde(serialize_with = "moment")]
    due_at: Moment,
    #[serde(serialize_with = "moment")]
    finished_at: Moment,
    /// Requests received for the reference, by operation.
    requests: Json<serde_json::Value>,
}

/// One callback, sent or not.
#[derive(Debug, Serialize)]
pub(crate) struct Callback {
    id: Uuid,
    event_id: String,
    reference: String,
    /// WAITING, DELIVERED, LOST or ABANDONED.
    state: String,
    attempts: i32,
    last_status: Option<i32>,
    last_error: Option<String>,
    next_attempt_at: Timestamp,
    body: Json<serde_json::Value>,
}

fn moment<S: Serializer>(moment: &Moment, serializer: S) -> Result<S::Ok, S::Error> {
    moment.map(jiff_sqlx::Timestamp::to_jiff).serialize(serializer)
}

/// Up to `limit` rows with ids above `after`, of one reference or of all.
pub(crate) async fn entries(
    pool: &PgPool,
    reference: Option<&str>,
    remembered_since: Timestamp,
    after: i64,
    limit: i64,
) -> Result<Vec<Entry>, sqlx::Error> {
    sqlx::query_as!(
        Entry,
        r#"SELECT t.id, t.reference, t.status AS "status: Status", t.tombstone, t.refused,
                  t.deduplicated, (t.forgotten OR t.received_at < $2) AS "forgotten!",
                  t.amount_minor, t.currency, t.creditor_account, t.end_to_end_id, t.reason,
                  t.recall_refusal, t.received_at, t.deadline, t.due_at, t.finished_at,
                  coalesce((SELECT jsonb_object_agg(r.operation, r.received) FROM requests r
                            WHERE r.reference = t.reference), '{}')
                      AS "requests!: Json<serde_json::Value>"
           FROM transfers t
           WHERE ($1::text IS NULL OR t.reference = $1) AND t.id > $3
           ORDER BY t.id LIMIT $4"#,
        reference,
        remembered_since.to_sqlx(),
        after,
        limit,
    )
    .fetch_all(pool)
    .await
}

/// Requests received for a reference, by operation, whether or not it has a row.
pub(crate) async fn requests(pool: &PgPool, reference: &str) -> Result<serde_json::Value, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT coalesce(jsonb_object_agg(operation, received), '{}') AS "requests!"
           FROM requests WHERE reference = $1"#,
        reference,
    )
    .fetch_one(pool)
    .await
}

/// The newest `limit` callbacks, of one reference or of all.
pub(crate) async fn callbacks(
    pool: &PgPool,
    reference: Option<&str>,
    limit: i64,
) -> Result<Vec<Callback>, sqlx::Error> {
    sqlx::query_as!(
        Callback,
        r#"SELECT id, event_id, reference, state, attempts, last_status, last_error,
                  next_attempt_at, body::jsonb AS "body!: Json<serde_json::Value>"
           FROM callbacks WHERE $1::text IS NULL OR reference = $1
           ORDER BY id DESC LIMIT $2"#,
        reference,
        limit,
    )
    .fetch_all(pool)
    .await
}
