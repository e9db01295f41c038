//! An event is stored with its transaction, and numbered in the order of its key.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use outbox::{MIGRATOR, NewEvent, append};
use postgres_kit::Pool;
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

fn event<'a>(event_id: &'a str, key: &'a str, body: &'a serde_json::Value) -> NewEvent<'a> {
    NewEvent { event_id, kind: "happened", version: 1, key, body, trace_parent: None }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_an_outbox_event_is_stored_with_its_transaction_or_not_at_all(pool: PgPool) {
    let body = json!({});
    let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
    assert_eq!(append(&mut tx, event("rolled-back", "k", &body)).await.unwrap(), Some(1));
    tx.rollback().await.unwrap();
    assert_eq!(support::unpublished(&pool).await, 0);
    let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
    assert_eq!(
        append(&mut tx, event("committed", "k", &body)).await.unwrap(),
        Some(1),
        "expected no gap after a rollback"
    );
    tx.commit().await.unwrap();
    assert_eq!(support::unpublished(&pool).await, 1);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_a_repeated_outbox_event_id_is_written_once_without_a_gap(pool: PgPool) {
    let body = json!({});
    let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
    assert_eq!(append(&mut tx, event("one", "k", &body)).await.unwrap(), Some(1));
    assert_eq!(append(&mut tx, event("one", "k", &body)).await.unwrap(), None);
    assert_eq!(append(&mut tx, event("two", "k", &body)).await.unwrap(), Some(2));
    assert_eq!(append(&mut tx, event("three", "other", &body)).await.unwrap(), Some(1));
    tx.commit().await.unwrap();
    let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
    assert_eq!(append(&mut tx, event("one", "k", &body)).await.unwrap(), None);
    assert_eq!(append(&mut tx, event("four", "k", &body)).await.unwrap(), Some(3));
    tx.commit().await.unwrap();
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_concurrent_event_writers_of_a_key_get_consecutive_numbers(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = PgPoolOptions::new().max_connections(16).connect_with(connect).await.unwrap();
    let writers = (0..64).map(|n| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
            let id = format!("event-{n}");
            let sequence = append(&mut tx, event(&id, "k", &json!({}))).await.unwrap();
            tx.commit().await.unwrap();
            sequence
        })
    });
    let mut sequences = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        sequences.push(writer.await.unwrap().unwrap());
    }
    sequences.sort_unstable();
    assert_eq!(sequences, (1..=64).collect::<Vec<i64>>());
    // Reading by position reads each key in order.
    let by_position: Vec<i64> =
        sqlx::query_scalar("SELECT sequence FROM outbox ORDER BY position").fetch_all(&pool).await.unwrap();
    assert_eq!(by_position, sequences);
    pool.close().await;
}
