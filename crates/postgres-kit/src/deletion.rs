//! Deletion in batches, so that no statement holds many locks or runs for long.

use sqlx::postgres::PgQueryResult;

/// Rows deleted in one statement.
pub const BATCH: i64 = 1_000;
/// Upper bound of rows in one call. A call that deleted as many has left some: the caller calls again at once.
pub const DELETED_MAX: u64 = 100_000;

/// Repeats a statement that deletes at most [`BATCH`] rows until a batch is not full, or [`DELETED_MAX`] rows are deleted; returns the
/// number of rows.
///
/// # Errors
/// [`sqlx::Error`]; rows that were deleted before stay deleted.
pub async fn delete_in_batches<D>(delete: impl Fn() -> D) -> sqlx::Result<u64>
where
    D: Future<Output = sqlx::Result<PgQueryResult>>,
{
    let mut deleted = 0;
    while deleted < DELETED_MAX {
        let rows = delete().await?.rows_affected();
        deleted += rows;
        if rows < BATCH.unsigned_abs() {
            break;
        }
    }
    Ok(deleted)
}
