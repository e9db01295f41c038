//! A lock that keeps pages of the statement and the listing complete. Ids and cursors are assigned before their
//! transactions commit, so a later one can become visible before an earlier one; a page read at that time would skip the
//! earlier one for good.
//!
//! Each writer therefore holds one advisory lock in shared mode, and each page read holds it exclusively: the read waits for
//! the writers in progress and holds up later ones. A writer takes this lock after every lock for which it may wait, and
//! before it reads the clock.

use sqlx::{PgConnection, PgPool, PgTransaction};

/// Takes the lock in shared mode, until the transaction ends.
pub(crate) async fn lock_for_write(db: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!("SELECT pg_advisory_xact_lock_shared(1, 0)").execute(db).await?;
    Ok(())
}

/// Begins a transaction that holds the lock exclusively.
pub(crate) async fn begin_page_read(pool: &PgPool) -> Result<PgTransaction<'_>, sqlx::Error> {
    let mut tx = pool.begin().await?;
    // A separate statement, so that the next one sees everything that was committed before.
    sqlx::query!("SELECT pg_advisory_xact_lock(1, 0)").execute(&mut *tx).await?;
    Ok(tx)
}
