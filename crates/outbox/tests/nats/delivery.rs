//! Events have their effect once and in the order of their key.

use std::time::Duration;

use outbox::{MIGRATOR, operator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::pipeline::{EventPipeline, in_order};
use super::support::{until, until_all_published, write};

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_s3_6_relayed_events_have_their_effect_once_and_in_order(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pipeline = EventPipeline::start("events", connect).await;
    // The consumer starts before the stream exists.
    let consumer = pipeline.consumer().await;
    let relay = pipeline.relay().await;
    for n in 1..=10 {
        for key in 0..8 {
            write(&pipeline.pool, &format!("key-{key}"), n).await;
        }
    }
    pipeline.until_effects(80).await;
    assert_eq!(pipeline.sequences().await, in_order(8, 10));
    // Some events may have had their effect before the relay marked them as published.
    until_all_published(&pipeline.pool).await;

    // The relay creates a new stream, in which the broker does not know the ids, so every event is delivered again.
    drop(consumer);
    pipeline.jetstream().await.delete_stream("EVENTS").await.unwrap();
    assert_eq!(
        operator::republish(&pipeline.pool.clone().into(), Duration::from_secs(600)).await.unwrap(),
        80
    );
    until_all_published(&pipeline.pool).await;
    let consumer = pipeline.consumer().await;
    write(&pipeline.pool, "key-0", 11).await;
    pipeline.until_effects(81).await;
    relay.stop().await;
    drop(consumer);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_consumer_death_with_many_messages_in_flight_keeps_the_order(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    consumer_dies_at_the_first_event(10, EventPipeline::start("consumer-dies-before", connect).await).await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_consumer_death_with_one_message_in_flight_keeps_the_order(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    consumer_dies_at_the_first_event(1, EventPipeline::start("consumer-dies-over", connect).await).await;
}

/// A consumer dies during the effect of the first of `written_before` events; ten are written in total, and another consumer
/// continues.
async fn consumer_dies_at_the_first_event(written_before: i64, pipeline: EventPipeline) {
    let relay = pipeline.relay().await;
    for n in 1..=written_before {
        write(&pipeline.pool, "key-0", n).await;
    }
    until_all_published(&pipeline.pool).await;
    // The lock blocks effects, so a message is in flight when the consumer dies.
    let mut lock = pipeline.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE effects IN SHARE MODE").execute(&mut *lock).await.unwrap();
    let first = pipeline.consumer().await;
    until("a message is in flight", async || {
        sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'effects'::regclass
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .fetch_one(&pipeline.pool)
        .await
        .unwrap()
            > 0
    })
    .await;
    drop(first);
    // The broker redelivers the first event only after a second, and could deliver the later ones at once.
    for n in written_before + 1..=10 {
        write(&pipeline.pool, "key-0", n).await;
    }
    let second = pipeline.consumer().await;
    lock.rollback().await.unwrap();
    pipeline.until_effects(10).await;
    assert_eq!(pipeline.sequences().await, in_order(1, 10));
    relay.stop().await;
    drop(second);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_a_consumer_holds_back_an_out_of_order_event_but_not_for_ever(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pipeline = EventPipeline::start("out-of-order", connect).await;
    pipeline.broker().await.stream().await.unwrap();
    for sequence in [3, 2, 1] {
        pipeline.send_event(sequence).await;
    }
    let consumer = pipeline.consumer().await;
    pipeline.until_effects(3).await;
    assert_eq!(pipeline.sequences().await, in_order(1, 3));
    drop(consumer);

    // The fourth event never arrives.
    pipeline.send_event(5).await;
    let consumer = pipeline.consumer_with_out_of_order_max(3).await;
    pipeline.until_effects(4).await;
    drop(consumer);
}
