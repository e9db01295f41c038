//! The begin of a transaction that nobody can interrupt.

use sqlx::{PgPool, Postgres, Transaction};

/// Begins a transaction. A caller that goes away meanwhile, for example because a client disconnects or an activity is cancelled, leaves
/// nothing behind: sqlx would return the connection to the pool within the transaction that it had begun, and what the next user of the
/// connection writes would be confirmed and never committed.
///
/// # Errors
/// [`sqlx::Error`]: no connection, or the database did not begin.
#[expect(clippy::disallowed_methods, reason = "the transactions of all crates that store rows begin here")]
pub async fn begin(pool: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    let pool = pool.clone();
    // The task begins in any case; a transaction that nobody takes is rolled back.
    tokio::spawn(async move { pool.begin().await }).await.map_err(|_| sqlx::Error::WorkerCrashed)?
}
