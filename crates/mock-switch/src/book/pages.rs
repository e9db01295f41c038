//! What a client reads page by page, the statement and the listing, must lose
//! nothing between two pages. Ids and cursors are handed out before their
//! transactions are committed, so that a later one can be seen before an
//! earlier one; a page read at that moment would pass over the earlier one.
//!
//! So whoever writes to the book holds one lock, shared, and whoever reads a
//! page holds it alone: a page then waits for the writers under way, and holds
//! up the next ones while it is read. A writer takes it after every lock that
//! it waits for with others, and before it looks at the clock.

use sqlx::{PgConnection, PgPool, PgTransaction};

/// Lets pages wait for this transaction.
pub(crate) async fn hold_open(db: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!("SELECT pg_advisory_xact_lock_shared(1, 0)").execute(db).await?;
    Ok(())
}

/// Opens a transaction in which a page can be read.
pub(crate) async fn turn(pool: &PgPool) -> Result<PgTransaction<'_>, sqlx::Error> {
    let mut tx = pool.begin().await?;
    // A statement of its own: the next one then sees all that was committed before.
    sqlx::query!("SELECT pg_advisory_xact_lock(1, 0)").execute(&mut *tx).await?;
    Ok(tx)
}
