//! The book as the admin API shows it: every row, regardless of the retention.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use serde::{Serialize, Serializer};
use sqlx::PgPool;
use sqlx::types::Json;
use uuid::Uuid;

use crate::status::TransferStatus;

/// A nullable column of type timestamptz.
type OptionalTimestamp = Option<jiff_sqlx::Timestamp>;

/// A row of the table `transfers`.
#[derive(Debug, Serialize)]
pub(crate) struct TransferRow {
    /// Number of the row, ascending; the position for paging.
    pub(crate) id: i64,
    reference: String,
    status: TransferStatus,
    tombstone: bool,
    /// Whether the submit was refused.
    refused: bool,
    deduplicated: bool,
    /// Whether the transfer is forgotten, because it is beyond the retention or because of a failover.
    forgotten: bool,
    amount_minor: Option<i64>,
    /// What came back of a settled transfer, whole or in parts.
    returned_minor: i64,
    currency: Option<String>,
    creditor_account: Option<String>,
    end_to_end_id: Option<String>,
    reason: Option<String>,
    recall_refusal: Option<String>,
    received_at: Timestamp,
    #[serde(serialize_with = "optional_timestamp")]
    deadline: OptionalTimestamp,
    #[serde(serialize_with = "optional_timestamp")]
    due_at: OptionalTimestamp,
    #[serde(serialize_with = "optional_timestamp")]
    finished_at: OptionalTimestamp,
    /// Requests received for the reference, by operation.
    requests: Json<serde_json::Value>,
}

/// A row of the table `callbacks`.
#[derive(Debug, Serialize)]
pub(crate) struct CallbackRow {
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

fn optional_timestamp<S: Serializer>(value: &OptionalTimestamp, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(jiff_sqlx::Timestamp::to_jiff).serialize(serializer)
}

/// Up to `limit` transfers with ids above `after`, of one reference or of all.
pub(crate) async fn transfers(
    pool: &PgPool,
    reference: Option<&str>,
    remembered_since: Timestamp,
    after: i64,
    limit: i64,
) -> Result<Vec<TransferRow>, sqlx::Error> {
    sqlx::query_as!(
        TransferRow,
        r#"SELECT t.id, t.reference, t.status AS "status: TransferStatus", t.tombstone, t.refused,
                  t.deduplicated, (t.forgotten OR t.received_at < $2) AS "forgotten!",
                  t.amount_minor,
                  (CASE WHEN t.status = 'RETURNED' THEN t.amount_minor
                        ELSE (SELECT coalesce(sum(r.amount_minor), 0)::bigint FROM returns r WHERE r.transfer_id = t.id) END)
                      AS "returned_minor!",
                  t.currency, t.creditor_account, t.end_to_end_id, t.reason,
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

/// Requests received for a reference, by operation, even if the reference has no transfer.
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
) -> Result<Vec<CallbackRow>, sqlx::Error> {
    sqlx::query_as!(
        CallbackRow,
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
