//! Counts received requests. The count is committed before the request is processed, so that a dropped request counts too.

use sqlx::PgExecutor;

/// An operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Submit,
    Query,
    Cancel,
    Recall,
    Statement,
    Listing,
}

impl Operation {
    /// The word in the database, in metrics and in logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Query => "query",
            Self::Cancel => "cancel",
            Self::Recall => "recall",
            Self::Statement => "statement",
            Self::Listing => "listing",
        }
    }
}

/// How many requests of one operation were received for a reference.
pub(crate) async fn received(
    db: impl PgExecutor<'_>,
    reference: &str,
    operation: Operation,
) -> Result<i64, sqlx::Error> {
    let received = sqlx::query_scalar!(
        "SELECT received FROM requests WHERE reference = $1 AND operation = $2",
        reference,
        operation.as_str(),
    )
    .fetch_optional(db)
    .await?;
    Ok(received.unwrap_or(0))
}

/// Counts one request; returns its number, from 1, in the behaviour's script.
pub(crate) async fn count(
    db: impl PgExecutor<'_>,
    reference: &str,
    operation: Operation,
    behaviour_id: Option<i64>,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        "INSERT INTO requests AS r (reference, operation, received, behaviour_id, step)
         VALUES ($1, $2, 1, $3, 1)
         ON CONFLICT (reference, operation) DO UPDATE
         SET received = r.received + 1,
             step = CASE WHEN r.behaviour_id IS NOT DISTINCT FROM $3 THEN r.step + 1 ELSE 1 END,
             behaviour_id = $3
         RETURNING step",
        reference,
        operation.as_str(),
        behaviour_id,
    )
    .fetch_one(db)
    .await
}
