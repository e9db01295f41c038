//! A row lock on an account, by which a test holds a step of the ledger.

use std::time::Duration;

use crate::System;
use crate::wait::until;
use sqlx::{Postgres, Transaction};

/// Time limit for steps to wait.
const WITHIN: Duration = Duration::from_secs(60);

/// A row lock on an account, for which reserve, debit and release wait.
#[derive(Debug)]
pub struct AccountRowLock {
    /// Its end gives the lock up.
    pub transaction: Transaction<'static, Postgres>,
    /// Process id of the session that holds the lock.
    pid: i32,
}

/// Locks an account.
///
/// # Errors
/// If there is no such account, or PostgreSQL does not answer.
pub async fn lock_account(system: &System, account: &str) -> anyhow::Result<AccountRowLock> {
    let mut transaction = system.database.pool.begin().await?;
    let pid = sqlx::query_scalar("SELECT pg_backend_pid() FROM accounts WHERE account_id = $1 FOR UPDATE")
        .bind(account)
        .fetch_one(&mut *transaction)
        .await?;
    Ok(AccountRowLock { transaction, pid })
}

/// Waits until this number of steps wait for the account.
///
/// # Errors
/// If fewer wait in time, or PostgreSQL does not answer.
pub async fn wait_until_blocked(system: &System, lock: &AccountRowLock, steps: usize) -> anyhow::Result<()> {
    until(&format!("{steps} steps wait for the account"), WITHIN, || async {
        let queries = waiting_queries(system, lock).await?;
        let is_step = |query: &&String| query.contains("accounts") || query.contains("INTO journal");
        Ok((queries.iter().filter(is_step).count() >= steps).then_some(()))
    })
    .await
}

/// The queries of all sessions that wait for the lock, directly or behind each other.
///
/// # Errors
/// If PostgreSQL does not answer.
pub async fn waiting_queries(system: &System, lock: &AccountRowLock) -> anyhow::Result<Vec<String>> {
    let queries = sqlx::query_scalar(
        "WITH RECURSIVE behind (pid) AS (
             SELECT $1
             UNION
             SELECT a.pid FROM pg_stat_activity a JOIN behind b ON b.pid = ANY(pg_blocking_pids(a.pid))
             WHERE a.datname = current_database())
         SELECT a.query FROM behind JOIN pg_stat_activity a USING (pid) WHERE pid <> $1",
    );
    Ok(queries.bind(lock.pid).fetch_all(&system.database.pool).await?)
}
