//! Used by every bench: a connection pool with durable commits, and output.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use payment_ledger::Ledger;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};

/// A connection pool for a database with durable commits, which all figures assume.
///
/// # Errors
/// If the database cannot be reached, or its commits are not durable.
pub(crate) async fn durable_pool(url: &str, connections: u32) -> anyhow::Result<PgPool> {
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(30))
        .connect(url)
        .await
        .context("the database is unavailable")?;
    let fsync: String =
        sqlx::query_scalar("SELECT current_setting('fsync') || ' ' || current_setting('synchronous_commit')")
            .fetch_one(&pool)
            .await?;
    anyhow::ensure!(
        fsync == "on on",
        "commits are not durable (fsync, synchronous_commit: {fsync}): set both to on"
    );
    Ok(pool)
}

/// Creates the internal accounts in EUR and the customers' accounts `customer-0` and so on.
///
/// # Errors
/// If the database refuses them.
pub(crate) async fn create_accounts(pool: &PgPool, customers: u64) -> anyhow::Result<()> {
    let create = format!(
        "INSERT INTO accounts (account_id, tenant_id, kind, currency)
         SELECT 'internal:' || name || ':EUR', 'internal', 'internal', 'EUR'
         FROM unnest(ARRAY['escrow', 'funding', 'holding']) AS names (name);
         INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor)
         SELECT 'customer-' || n, 'bench', 'customer', 'EUR', 0 FROM generate_series(0, {customers} - 1) AS n"
    );
    sqlx::raw_sql(AssertSqlSafe(create)).execute(pool).await?;
    Ok(())
}

/// Seals every unsealed journal entry.
///
/// # Errors
/// If the database does not answer.
pub(crate) async fn seal_all(ledger: &Ledger) -> anyhow::Result<()> {
    while let SealOutcome::Batch { .. } = ledger.seal(BatchSize::new(BatchSize::MAX)).await? {}
    Ok(())
}

/// Brings the statistics up to date and writes everything to disk, so that neither happens during a measurement.
///
/// # Errors
/// If the database does not answer.
pub(crate) async fn analyze(pool: &PgPool) -> anyhow::Result<()> {
    for statement in ["VACUUM ANALYZE", "CHECKPOINT"] {
        sqlx::raw_sql(statement).execute(pool).await?;
    }
    Ok(())
}

/// Rounds to two decimals.
pub(crate) fn round2(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Prints a result and flushes.
///
/// # Errors
/// If stdout is closed.
pub(crate) fn print_now(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
