//! Number of rows that claiming and measuring read with a large backlog.

use outbound_webhooks::deliveries::DeliveryState;
use outbound_webhooks::measure;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::support::{TestEndpoint, TestWebhooks, status};

/// Deliveries scheduled for later.
const BACKLOG: i64 = 50_000;

/// A pool of one connection, whose reads the statistics count.
async fn single_connection(pool: &PgPool) -> PgPool {
    let options = (*pool.connect_options()).clone();
    PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap()
}

/// Rows of `webhook_deliveries` that were read so far, with or without an index.
async fn rows_read(pool: &PgPool) -> i64 {
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(pool).await.unwrap();
    let sum = "SELECT (t.seq_tup_read + (SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid))::bigint
               FROM pg_stat_user_tables t WHERE t.relname = 'webhook_deliveries'";
    sqlx::query_scalar(sum).fetch_one(pool).await.unwrap()
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_webhook_deliveries_scheduled_for_later_are_not_read(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| status(200)).await;
    let waits = webhooks.endpoint("acme", &server.url("hook"), &["late"]).await.id;
    let well = webhooks.endpoint("acme", &server.url("hook"), &["happened"]).await.id;
    sqlx::query(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body, failed_attempts, next_attempt_at)
         SELECT $1, 'late:' || n, 'late', '{}', 3, now() + interval '1 hour' FROM generate_series(1, $2) n",
    )
    .bind(waits.as_str())
    .bind(BACKLOG)
    .execute(&webhooks.pool)
    .await
    .unwrap();
    // As autovacuum would.
    sqlx::query("VACUUM ANALYZE webhook_deliveries").execute(&webhooks.pool).await.unwrap();

    let single = single_connection(&webhooks.pool).await;
    let before = rows_read(&single).await;
    webhooks.publish("acme", "now", "happened").await;
    let sender = webhooks.sender_over(single.clone(), webhooks.options.clone());
    webhooks.wait_for_delivery(&well, "delivered", |one| one.state == DeliveryState::Delivered).await;
    sender.stop().await;
    let by_sender = rows_read(&single).await - before;
    assert!((1..BACKLOG / 10).contains(&by_sender), "expected few rows, the sender read {by_sender}");

    let before = rows_read(&single).await;
    let now = measure(&single.clone().into()).await.unwrap();
    assert_eq!(
        (now.pending, now.due, now.oldest_due_ms),
        (10_000, 0, 0),
        "expected the count to stop at 10,000"
    );
    let by_measure = rows_read(&single).await - before;
    assert!((1..BACKLOG / 2).contains(&by_measure), "expected few rows, measuring read {by_measure}");
}
