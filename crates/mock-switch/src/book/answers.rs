//! Answers recorded under idempotency keys.

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use sqlx::types::Json;

use super::Transfer;
use super::ids::TransferId;

/// The idempotency key was used for another reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyReusedError;

/// The answer recorded under an idempotency key; `None` without a record that counts. An answer about a transfer beyond the retention
/// does not count, an answer without a transfer only if `sticky`.
pub(super) async fn recorded_answer<A>(
    db: &mut PgConnection,
    operation: &str,
    key: &str,
    reference: &str,
    known: Option<&Transfer>,
    sticky: bool,
) -> Result<Result<Option<A>, KeyReusedError>, sqlx::Error>
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
        Some(row) if row.reference != reference => Ok(Err(KeyReusedError)),
        Some(row) if counts(row.transfer_id) => {
            let answer =
                serde_json::from_value(row.answer.0).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
            Ok(Ok(Some(answer)))
        }
        _ => Ok(Ok(None)),
    }
}

/// Records an answer under its idempotency key; `transfer_id` is `None` for an indefinite answer.
pub(super) async fn record_answer<A: Serialize + Sync>(
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
