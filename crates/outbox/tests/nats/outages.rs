//! The broker is killed, paused and restarted.

use std::time::Duration;

use outbox::MIGRATOR;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio_util::sync::CancellationToken;

use super::pipeline::{CONSUMER, EventPipeline, in_order};
use super::support::{until, until_all_published, write};

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_killed_or_paused_broker_loses_no_event_and_keeps_the_order(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let mut pipeline = EventPipeline::start("broker-down", connect).await;
    let (relay, consumer) = (pipeline.relay().await, pipeline.consumer().await);
    let (pool, stop) = (pipeline.pool.clone(), CancellationToken::new());
    let stopped = stop.clone();
    // Writes events during the outages too.
    let writing = tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(100));
        let mut written = 0;
        while !stopped.is_cancelled() {
            pace.tick().await;
            written += 1;
            for key in 0..5 {
                write(&pool, &format!("key-{key}"), written).await;
            }
        }
        written
    });
    for round in 0..6 {
        let before = pipeline.effects().await;
        until("events have effects", async || pipeline.effects().await > before).await;
        // Killed, paused, or paused and then killed.
        let (is_paused, is_killed) = (round % 3 != 0, round % 3 != 1);
        if is_paused {
            pipeline.server.pause().unwrap();
        }
        if is_killed {
            pipeline.server.kill().await.unwrap();
        }
        until("events are unpublished", async || {
            outbox::measure(&pipeline.pool.clone().into()).await.unwrap().oldest_ms > 300
        })
        .await;
        if is_killed {
            pipeline.server.restart().await.unwrap();
        } else {
            pipeline.server.resume().unwrap();
        }
    }
    stop.cancel();
    let written = writing.await.unwrap();
    until_all_published(&pipeline.pool).await;
    pipeline.until_effects(5 * written).await;
    assert_eq!(pipeline.sequences().await, in_order(5, written));
    relay.stop().await;
    drop(consumer);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_killed_broker_keeps_events_that_a_consumer_did_not_consume(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let mut pipeline = EventPipeline::start("stopped-consumer", connect).await;
    // One consumer consumes every event. The other one stops after the first event, which created its durable consumers.
    let stopped = pipeline.start_consumer("stopped").await;
    let relay = pipeline.relay().await;
    write(&pipeline.pool, "key-0", 1).await;
    until("the other consumer processed the first event", async || {
        pipeline.processed_by("stopped").await == 1
    })
    .await;
    drop(stopped);
    let consumer = pipeline.consumer().await;
    for n in 2..=20 {
        for key in 0..8 {
            write(&pipeline.pool, &format!("key-{key}"), if key == 0 { n } else { n - 1 }).await;
        }
    }
    until_all_published(&pipeline.pool).await;
    until("the first consumer processed all events", async || {
        pipeline.processed_by(CONSUMER).await == 1 + 19 * 8
    })
    .await;
    drop(consumer);
    for _ in 0..3 {
        pipeline.kill_and_restart_server().await;
    }
    let restarted = pipeline.start_consumer("stopped").await;
    until("the other consumer processed all events", async || {
        pipeline.processed_by("stopped").await == 1 + 19 * 8
    })
    .await;
    drop(restarted);
    relay.stop().await;
}
