//! Deleting what is beyond the retention reads that, and not the rows that stay.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

use std::time::Duration;

use outbox::retention::{prune_processed, prune_published};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

/// Events of each age; each of them is published, and consumed by one consumer.
const OLD: i64 = 20;
const NEW: i64 = 3_000;
/// Rows of one table that a call may read for each row that it deletes, and for five more.
const ROWS_MAX: i64 = 4;

/// Rows read of these tables since the last call, by this pool of one connection.
async fn rows_read(pool: &PgPool) -> i64 {
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(pool).await.unwrap();
    let read = sqlx::query_scalar(
        "SELECT max(seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_user_tables
         WHERE relname IN ('outbox', 'processed_events', 'consumer_positions')",
    );
    let read = read.fetch_one(pool).await.unwrap();
    sqlx::query("SELECT pg_stat_reset()").execute(pool).await.unwrap();
    read
}

#[sqlx::test(migrator = "outbox::MIGRATOR")]
async fn s3_6_the_cost_of_the_retention_does_not_grow_with_what_stays(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let connect = connect.options([("enable_seqscan", "off")]);
    let pool = PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!(
        "INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at)
         SELECT 'e' || n, 'k', 1, 's' || n, 1, '{{}}', now() - CASE WHEN n <= {OLD} THEN interval '3 hours' ELSE '0' END
         FROM generate_series(1, {OLD} + {NEW}) AS n;
         INSERT INTO processed_events SELECT 'c', event_id, published_at FROM outbox;
         INSERT INTO consumer_positions SELECT 'c', subject_key, 1, published_at FROM outbox;
         ANALYZE"
    )))
    .execute(&pool)
    .await
    .unwrap();
    let retention = Duration::from_secs(3_600);
    rows_read(&pool).await;
    for old in [OLD, 0] {
        assert_eq!(prune_published(&pool.clone().into(), retention).await.unwrap(), old.unsigned_abs());
        let read = rows_read(&pool).await;
        assert!(read <= ROWS_MAX * (old + 5), "{read} rows were read to delete {old} events");
        assert_eq!(prune_processed(&pool.clone().into(), retention).await.unwrap(), old.unsigned_abs());
        let read = rows_read(&pool).await;
        assert!(read <= ROWS_MAX * (old + 5), "{read} rows were read to delete {old} marks");
    }
    pool.close().await;
}
