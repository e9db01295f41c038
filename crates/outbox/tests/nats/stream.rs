//! The stream: deleted, full, and with other settings.

use std::time::Duration;

use async_nats::jetstream;
use outbox::{MIGRATOR, operator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::pipeline::{EventPipeline, in_order};
use super::support::{until_all_published, write};

/// The loss of the broker's disk has the same effect.
#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_events_of_a_deleted_stream_are_consumed_after_a_republish(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pipeline = EventPipeline::start("deleted-stream", connect).await;
    let relay = pipeline.relay().await;
    for n in 1..=5 {
        write(&pipeline.pool, "key-0", n).await;
    }
    until_all_published(&pipeline.pool).await;
    pipeline.jetstream().await.delete_stream("EVENTS").await.unwrap();
    for n in 1..=5 {
        write(&pipeline.pool, "key-1", n).await;
    }
    until_all_published(&pipeline.pool).await;
    let consumer = pipeline.consumer().await;
    pipeline.until_effects(5).await;
    assert_eq!(
        operator::republish(&pipeline.pool.clone().into(), Duration::from_secs(600)).await.unwrap(),
        10
    );
    pipeline.until_effects(10).await;
    assert_eq!(pipeline.sequences().await, in_order(2, 5));
    drop(consumer);
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_a_full_event_stream_drops_oldest_events_and_accepts_new_limits(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let mut pipeline = EventPipeline::start("stream-limits", connect).await;
    pipeline.options.max_bytes = 30_000;
    let relay = pipeline.relay().await;
    for key in 0..200 {
        write(&pipeline.pool, &format!("key-{key}"), 1).await;
    }
    // No consumer runs, and the relay does not wait for one.
    until_all_published(&pipeline.pool).await;
    relay.stop().await;
    let mut stream = pipeline.jetstream().await.get_stream("EVENTS").await.unwrap();
    let stored = stream.info().await.unwrap().state.messages;
    assert!((20..180).contains(&stored), "expected a part of the 200 events, got {stored}");
    // A restarted broker does not know the ids of dropped messages, so it does not discard them as duplicates.
    pipeline.kill_and_restart_server().await;

    // The next start changes the limits of the stream.
    pipeline.options.max_bytes = 1 << 20;
    pipeline.options.max_age_s = 3_600;
    let broker = pipeline.broker().await;
    let config = broker.stream().await.unwrap().cached_info().config.clone();
    assert_eq!((config.max_bytes, config.max_age), (1 << 20, Duration::from_secs(3_600)));

    let relay = pipeline.relay().await;
    let consumer = pipeline.consumer().await;
    pipeline.until_effects(stored.try_into().unwrap()).await;
    assert_eq!(
        operator::republish(&pipeline.pool.clone().into(), Duration::from_secs(600)).await.unwrap(),
        200
    );
    pipeline.until_effects(200).await;
    drop(consumer);
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_a_nats_stream_with_other_subjects_is_refused_and_not_changed(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pipeline = EventPipeline::start("other-stream", connect).await;
    let other = jetstream::stream::Config {
        name: "EVENTS".into(),
        subjects: vec!["others.>".into()],
        ..Default::default()
    };
    pipeline.jetstream().await.create_stream(other).await.unwrap();
    let error = pipeline.broker().await.stream().await.unwrap_err().to_string();
    assert!(error.contains("EVENTS") && error.contains("other subjects"), "{error}");
}
