//! Poison: events that the broker rejects, and messages that the consumer cannot consume.

use async_nats::jetstream::message::PublishMessage;
use outbox::{MIGRATOR, NewEvent, append, operator};
use postgres_kit::Pool;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::pipeline::{EventPipeline, in_order};
use super::support::{until, until_all_published, write};

#[sqlx::test(migrator = "MIGRATOR")]
async fn r23_relay_and_consumer_park_poison_and_continue_with_other_events(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pipeline = EventPipeline::start("poison", connect).await;
    let relay = pipeline.relay().await;
    write(&pipeline.pool, "key-0", 1).await;
    until_all_published(&pipeline.pool).await;
    // Messages that are no events, before the other messages; and an id that PostgreSQL cannot store.
    let jetstream = pipeline.jetstream().await;
    for n in 0..8 {
        let message =
            PublishMessage::build().payload(vec![b'{', 0, 255].into()).message_id(format!("no-event-{n}"));
        jetstream.send_publish("events.happened", message).await.unwrap().await.unwrap();
    }
    let nul = json!({"event_id": "nul \0", "kind": "happened", "version": 1, "key": "k", "sequence": 1,
        "appended_at": "2026-01-01T00:00:00Z", "body": {}});
    jetstream.publish("events.happened", nul.to_string().into()).await.unwrap().await.unwrap();
    // The broker rejects a message of two megabytes.
    let large = json!({"text": "x".repeat(2 << 20)});
    let poison = json!({"poison": true});
    let mut tx = Pool::from(pipeline.pool.clone()).begin().await.unwrap();
    for (event_id, kind, key, body) in [
        ("large", "happened", "key-large", &large),
        ("nowhere", "not.a.token", "key-nowhere", &poison),
        ("poison", "happened", "key-poison", &poison),
    ] {
        append(&mut tx, NewEvent { event_id, kind, version: 1, key, body, trace_parent: None })
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let consumer = pipeline.consumer().await;
    for n in 2..=6 {
        write(&pipeline.pool, "key-0", n).await;
    }
    pipeline.until_effects(6).await;
    until("the poison is parked", async || {
        let backlog = outbox::measure(&pipeline.pool.clone().into()).await.unwrap();
        (backlog.parked, backlog.unpublished, backlog.parked_deliveries) == (2, 0, 10)
    })
    .await;
    let rejected: Vec<String> = operator::parked_events(&pipeline.pool.clone().into(), 10)
        .await
        .unwrap()
        .into_iter()
        .map(|parked| parked.event_id)
        .collect();
    assert_eq!(rejected, ["large", "nowhere"]);
    let parked = operator::parked_deliveries(&pipeline.pool.clone().into(), 20).await.unwrap();
    assert!(parked.iter().all(|(delivery, _)| delivery.deliveries == 3), "{parked:?}");
    assert_eq!(
        parked.iter().filter(|(delivery, _)| delivery.event_id.as_deref() == Some("poison")).count(),
        1
    );
    let with_message_id =
        parked.iter().filter(|(delivery, _)| delivery.event_id.as_deref() == Some("no-event-3")).count();
    assert_eq!(with_message_id, 1, "expected the event id from the message header");
    assert_eq!(pipeline.sequences().await, in_order(1, 6));
    relay.stop().await;
    drop(consumer);
}
