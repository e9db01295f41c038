//! Used by every bench: a connection pool with durable commits, and output.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

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
