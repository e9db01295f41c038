//! What every bench begins and ends with: a database with durable commits, and what is said.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// A pool over a database whose commits are durable, as all figures are meant.
///
/// # Errors
/// It cannot be reached, or its commits are not.
pub(crate) async fn durable_pool(url: &str, connections: u32) -> anyhow::Result<PgPool> {
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(30))
        .connect(url)
        .await
        .context("the database cannot be reached")?;
    let fsync: String =
        sqlx::query_scalar("SELECT current_setting('fsync') || ' ' || current_setting('synchronous_commit')")
            .fetch_one(&pool)
            .await?;
    anyhow::ensure!(fsync == "on on", "commits are not durable here (fsync, synchronous_commit: {fsync})");
    Ok(pool)
}

/// Two decimals.
pub(crate) fn two(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Prints at once what was measured.
///
/// # Errors
/// Nobody reads any more.
pub(crate) fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
