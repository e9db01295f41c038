//! Deletion in batches, so that no statement holds many locks or runs for long.

use sqlx::postgres::PgQueryResult;

/// Rows deleted in one statement.
pub const BATCH: i64 = 1_000;
/// Upper bound of statements in one call; the next call continues.
const BATCHES_MAX: usize = 100;

/// Repeats a statement that deletes at most [`BATCH`] rows until a batch is not full; returns the number of rows.
///
/// # Errors
/// [`sqlx::Error`]; rows that were deleted before stay deleted.
pub async fn delete_in_batches<D>(delete: impl Fn() -> D) -> sqlx::Result<u64>
where
    D: Future<Output = sqlx::Result<PgQueryResult>>,
{
    let mut deleted = 0;
    for _ in 0..BATCHES_MAX {
        let rows = delete().await?.rows_affected();
        deleted += rows;
        if rows < BATCH.unsigned_abs() {
            break;
        }
    }
    Ok(deleted)
}
