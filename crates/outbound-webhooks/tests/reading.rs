//! What a look costs: how many rows are read while much waits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use outbound_webhooks::deliveries::DeliveryState;
use outbound_webhooks::measure;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use support::{Book, Receiver, status};

/// Deliveries that are scheduled for later.
const BACKLOG: i64 = 50_000;

/// One connection, so that all it read can be counted.
async fn alone(pool: &PgPool) -> PgPool {
    let options = (*pool.connect_options()).clone();
    PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap()
}

/// Rows of deliveries that were read so far, through an index or not.
async fn read(pool: &PgPool) -> i64 {
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(pool).await.unwrap();
    let sum = "SELECT (t.seq_tup_read + (SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid))::bigint
               FROM pg_stat_user_tables t WHERE t.relname = 'webhook_deliveries'";
    sqlx::query_scalar(sum).fetch_one(pool).await.unwrap()
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_what_is_scheduled_for_later_is_not_read(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, _| status(200)).await;
    let waits = book.endpoint("acme", &receiver.url("hook"), &["late"]).await.id;
    let well = book.endpoint("acme", &receiver.url("hook"), &["happened"]).await.id;
    sqlx::query(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body, failed_attempts, next_attempt_at)
         SELECT $1, 'late:' || n, 'late', '{}', 3, now() + interval '1 hour' FROM generate_series(1, $2) n",
    )
    .bind(waits.as_str())
    .bind(BACKLOG)
    .execute(&book.pool)
    .await
    .unwrap();
    // As autovacuum does it.
    sqlx::query("VACUUM ANALYZE webhook_deliveries").execute(&book.pool).await.unwrap();

    let alone = alone(&book.pool).await;
    let before = read(&alone).await;
    book.happens("acme", "now", "happened").await;
    let sender = book.sender_over(alone.clone(), book.options.clone());
    book.until_one(&well, "delivered", |one| one.state == DeliveryState::Delivered).await;
    sender.stop().await;
    let by_sender = read(&alone).await - before;
    assert!((1..BACKLOG / 10).contains(&by_sender), "the sender read {by_sender} rows");

    let before = read(&alone).await;
    let now = measure(&alone).await.unwrap();
    assert_eq!((now.pending, now.due, now.oldest_due_ms), (10_000, 0, 0), "no more than that is counted");
    let by_measure = read(&alone).await - before;
    assert!((1..BACKLOG / 2).contains(&by_measure), "measuring read {by_measure} rows");
}
