//! Consuming events once and in order, parked deliveries, their retention, and the lag (S3.6, R23).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{Timestamp, ToSpan as _};
use outbox::consume::{
    ConsumeOutcome, EffectError, EventEffect, KeyOrder, ParkedDelivery, ReceivedEvent, consume, park,
};
use outbox::operator::{Discard, discard, parked_deliveries};
use outbox::{ConsumerLag, ConsumerLagMonitor, Event, MIGRATOR, measure, retention};
use postgres_kit::Connection;
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// The effect of an event is unavailable the first time, and [`WriteEffect`] afterwards.
#[derive(Default)]
struct AvailableLater {
    was_tried: AtomicBool,
}

impl EventEffect for AvailableLater {
    async fn apply(&self, tx: &mut Connection, events: &[&ReceivedEvent]) -> Result<(), EffectError> {
        if !self.was_tried.swap(true, Ordering::Relaxed) {
            return Err(EffectError::Unavailable("unavailable".into()));
        }
        WriteEffect.apply(tx, events).await
    }
}

/// Writes a row for each event; fails after an event whose body says so.
struct WriteEffect;

impl EventEffect for WriteEffect {
    async fn apply(&self, tx: &mut Connection, events: &[&ReceivedEvent]) -> Result<(), EffectError> {
        for ReceivedEvent { event, .. } in events {
            let insert = sqlx::query("INSERT INTO effects (event_id) VALUES ($1)").bind(&event.event_id);
            insert.execute(&mut *tx).await.unwrap();
            match event.body["fails"].as_str() {
                Some("poison") => return Err(EffectError::Poison("refused".into())),
                Some(_) => return Err(EffectError::Unavailable("unavailable".into())),
                None => {}
            }
        }
        Ok(())
    }
}

fn event(id: &str) -> Event {
    Event {
        event_id: id.into(),
        kind: "happened".into(),
        version: 1,
        key: "k".into(),
        sequence: 1,
        appended_at: jiff::Timestamp::UNIX_EPOCH,
        body: json!({}),
    }
}

/// An event of a key, with the id `{key}{sequence}`.
fn numbered(key: &str, sequence: i64) -> Event {
    Event { key: key.into(), sequence, ..event(&format!("{key}{sequence}")) }
}

/// Consumes events together.
async fn consume_all(
    pool: &PgPool,
    events: impl IntoIterator<Item = Event>,
) -> Vec<Result<ConsumeOutcome, EffectError>> {
    let receive = |event| ReceivedEvent { event, order: KeyOrder::Required, trace_parent: None };
    let received: Vec<_> = events.into_iter().map(receive).collect();
    consume(&pool.clone().into(), "c", &received, &WriteEffect).await
}

/// Consumes one event.
async fn consume_one(
    pool: &PgPool,
    consumer: &str,
    event: Event,
    order: KeyOrder,
) -> Result<ConsumeOutcome, EffectError> {
    let received = [ReceivedEvent { event, order, trace_parent: None }];
    consume(&pool.clone().into(), consumer, &received, &WriteEffect).await.pop().unwrap()
}

/// The outcomes as words.
fn words(results: &[Result<ConsumeOutcome, EffectError>]) -> Vec<&'static str> {
    let word = |result: &Result<ConsumeOutcome, EffectError>| match result {
        Ok(ConsumeOutcome::Processed) => "processed",
        Ok(ConsumeOutcome::Duplicate) => "duplicate",
        Ok(ConsumeOutcome::OutOfOrder) => "out of order",
        Err(EffectError::Poison(_)) => "poison",
        Err(EffectError::Unavailable(_)) => "unavailable",
    };
    results.iter().map(word).collect()
}

async fn effects(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(pool).await.unwrap()
}

/// The events in the order of their effects.
async fn effects_in_order(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar("SELECT event_id FROM effects ORDER BY position").fetch_all(pool).await.unwrap()
}

/// Transactions that wrote effects.
async fn transactions(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(DISTINCT transaction) FROM effects").fetch_one(pool).await.unwrap()
}

/// Sixteen connections, and the table of effects.
async fn pool_with_effects(connect: PgConnectOptions) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(16).connect_with(connect).await.unwrap();
    sqlx::query(
        "CREATE TABLE effects (position bigint GENERATED ALWAYS AS IDENTITY, event_id text NOT NULL,
                               transaction xid8 NOT NULL DEFAULT pg_current_xact_id())",
    )
    .execute(&pool)
    .await
    .unwrap();
    pool
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_an_event_delivered_sixteen_times_at_once_has_one_effect(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    let deliveries = (0..16).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move { consume_one(&pool, "c", event("e"), KeyOrder::Required).await.unwrap() })
    });
    let mut processed = 0;
    for delivery in deliveries.collect::<Vec<_>>() {
        processed += usize::from(delivery.await.unwrap() == ConsumeOutcome::Processed);
    }
    assert_eq!((processed, effects(&pool).await), (1, 1));
    // Another consumer has its own effect.
    assert_eq!(
        consume_one(&pool, "d", event("e"), KeyOrder::Required).await.unwrap(),
        ConsumeOutcome::Processed
    );
    assert_eq!(effects(&pool).await, 2);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_a_consumer_effect_that_fails_leaves_no_processed_mark(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    let failing = Event { body: json!({"fails": "poison"}), ..event("e") };
    assert!(consume_one(&pool, "c", failing, KeyOrder::Required).await.is_err());
    assert_eq!(effects(&pool).await, 0);
    assert_eq!(
        consume_one(&pool, "c", event("e"), KeyOrder::Required).await.unwrap(),
        ConsumeOutcome::Processed
    );
    assert_eq!(effects(&pool).await, 1);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_an_event_waits_for_the_earlier_events_of_its_key(_: PgPoolOptions, connect: PgConnectOptions) {
    let pool = pool_with_effects(connect).await;
    let numbered = |sequence| numbered("e", sequence);
    let consume_numbered =
        async |sequence, order| consume_one(&pool, "c", numbered(sequence), order).await.unwrap();
    assert_eq!(consume_numbered(2, KeyOrder::Required).await, ConsumeOutcome::OutOfOrder);
    assert_eq!(effects(&pool).await, 0);
    assert_eq!(consume_numbered(1, KeyOrder::Required).await, ConsumeOutcome::Processed);
    assert_eq!(consume_numbered(2, KeyOrder::Required).await, ConsumeOutcome::Processed);
    assert_eq!(consume_numbered(1, KeyOrder::Required).await, ConsumeOutcome::Duplicate);
    // A parked event does not block later events, and neither does a missing event whose order is waived.
    let delivery = ParkedDelivery {
        consumer: "c".into(),
        stream: "S".into(),
        stream_sequence: 3,
        published_at: Timestamp::UNIX_EPOCH,
        subject: "s.0.x".into(),
        event_id: Some("e3".into()),
        payload: Vec::new(),
        reason: "refused".into(),
        deliveries: 5,
    };
    park(&pool.clone().into(), &delivery, Some(&numbered(3))).await.unwrap();
    assert_eq!(consume_numbered(4, KeyOrder::Required).await, ConsumeOutcome::Processed);
    assert_eq!(consume_numbered(6, KeyOrder::Required).await, ConsumeOutcome::OutOfOrder);
    assert_eq!(consume_numbered(6, KeyOrder::Waived).await, ConsumeOutcome::Processed);
    assert_eq!(
        consume_numbered(5, KeyOrder::Required).await,
        ConsumeOutcome::Processed,
        "expected the late event to be processed"
    );
    assert_eq!(
        consume_numbered(7, KeyOrder::Required).await,
        ConsumeOutcome::Processed,
        "expected the position not to move back"
    );
    // Another consumer and another key have their own order.
    let other = Event { key: "another".into(), ..numbered(1) };
    assert_eq!(
        consume_one(&pool, "d", numbered(1), KeyOrder::Required).await.unwrap(),
        ConsumeOutcome::Processed
    );
    let other = Event { event_id: "o1".into(), ..other };
    assert_eq!(consume_one(&pool, "c", other, KeyOrder::Required).await.unwrap(), ConsumeOutcome::Processed);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_events_consumed_together_share_a_transaction_in_the_order_of_their_keys(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    let events = [numbered("b", 2), numbered("a", 3), numbered("a", 1), numbered("b", 1), numbered("a", 2)];
    assert_eq!(words(&consume_all(&pool, events).await), ["processed"; 5]);
    assert_eq!(effects_in_order(&pool).await, ["a1", "a2", "a3", "b1", "b2"]);
    assert_eq!(transactions(&pool).await, 1);
    // Their marks and positions are those of events consumed alone.
    let events = [numbered("a", 3), numbered("a", 4), numbered("b", 4)];
    assert_eq!(words(&consume_all(&pool, events).await), ["duplicate", "processed", "out of order"]);
    assert_eq!(effects(&pool).await, 6);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_an_out_of_order_event_among_others_is_deferred_alone(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    let events = [numbered("a", 1), numbered("a", 3), numbered("b", 1), numbered("a", 4)];
    let expected = ["processed", "out of order", "processed", "out of order"];
    assert_eq!(words(&consume_all(&pool, events).await), expected);
    assert_eq!(effects_in_order(&pool).await, ["a1", "b1"]);
    let events = [numbered("a", 4), numbered("a", 2), numbered("a", 3)];
    assert_eq!(words(&consume_all(&pool, events).await), ["processed"; 3]);
    assert_eq!(effects_in_order(&pool).await, ["a1", "b1", "a2", "a3", "a4"]);
    // Where the order is waived, the event is consumed together with the others.
    let waived = [(numbered("a", 9), KeyOrder::Waived), (numbered("b", 2), KeyOrder::Required)]
        .map(|(event, order)| ReceivedEvent { event, order, trace_parent: None });
    assert_eq!(words(&consume(&pool.clone().into(), "c", &waived, &WriteEffect).await), ["processed"; 2]);
    assert_eq!(words(&consume_all(&pool, [numbered("a", 10)]).await), ["processed"]);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_r23_a_bad_event_among_others_fails_alone(_: PgPoolOptions, connect: PgConnectOptions) {
    let pool = pool_with_effects(connect).await;
    let fails = |how: &str, event| Event { body: json!({"fails": how}), ..event };
    let poison = fails("poison", numbered("b", 1));
    let events = [numbered("a", 1), numbered("a", 2), poison, numbered("b", 2), numbered("c", 1)];
    let expected = ["processed", "processed", "poison", "out of order", "processed"];
    assert_eq!(words(&consume_all(&pool, events).await), expected);
    assert_eq!(effects_in_order(&pool).await, ["a1", "a2", "c1"]);

    // Of two that are unavailable too; the others are not tried after them, and are consumed at the next delivery.
    let unavailable = |key| fails("unavailable", numbered(key, 1));
    let events = [numbered("e", 1), unavailable("d"), numbered("a", 3), unavailable("f"), numbered("g", 1)];
    let expected = ["processed", "unavailable", "processed", "unavailable", "unavailable"];
    assert_eq!(words(&consume_all(&pool, events).await), expected);
    assert_eq!(effects_in_order(&pool).await, ["a1", "a2", "c1", "a3", "e1"]);
    let events = ["d", "e", "f", "g"].map(|key| numbered(key, 1));
    let expected = ["processed", "duplicate", "processed", "processed"];
    assert_eq!(words(&consume_all(&pool, events).await), expected);
    assert_eq!(effects_in_order(&pool).await, ["a1", "a2", "c1", "a3", "e1", "d1", "f1", "g1"]);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_an_event_twice_among_others_has_one_effect(_: PgPoolOptions, connect: PgConnectOptions) {
    let pool = pool_with_effects(connect).await;
    let events = ["a", "b", "a", "a"].map(|key| numbered(key, 1));
    let expected = ["processed", "processed", "duplicate", "duplicate"];
    assert_eq!(words(&consume_all(&pool, events).await), expected);
    assert_eq!(effects_in_order(&pool).await, ["a1", "b1"]);
    // A repeated delivery of an event that is not consumed must not be acknowledged: the broker counts it for both.
    let events = [numbered("a", 3), numbered("b", 2), numbered("a", 3)];
    assert_eq!(words(&consume_all(&pool, events).await), ["out of order", "processed", "out of order"]);
    let poison = Event { body: json!({"fails": "poison"}), ..numbered("a", 2) };
    assert_eq!(words(&consume_all(&pool, [poison.clone(), poison]).await), ["poison"; 2]);
    assert_eq!(effects(&pool).await, 3);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_an_event_delivered_again_and_again_while_the_database_is_away_has_one_effect(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    let receive =
        |_| ReceivedEvent { event: numbered("a", 1), order: KeyOrder::Required, trace_parent: None };
    let deliveries: Vec<_> = (0..4).map(receive).collect();
    let results = consume(&pool.clone().into(), "c", &deliveries, &AvailableLater::default()).await;
    assert_eq!(words(&results), ["unavailable", "processed", "duplicate", "duplicate"]);
    assert_eq!(effects_in_order(&pool).await, ["a1"]);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_processes_that_consume_the_same_events_in_any_order_consume_each_once(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    let events: Vec<_> =
        (0..20).flat_map(|key| [1, 2, 3].map(|sequence| numbered(&format!("k{key}-"), sequence))).collect();
    let backwards: Vec<_> = events.iter().rev().cloned().collect();
    let processes = (0..8).map(|n| {
        let (pool, events) = (pool.clone(), if n % 2 == 0 { events.clone() } else { backwards.clone() });
        tokio::spawn(async move { consume_all(&pool, events).await })
    });
    let mut processed = 0;
    for process in processes.collect::<Vec<_>>() {
        let results = process.await.unwrap();
        processed += words(&results).iter().filter(|word| **word == "processed").count();
        assert!(results.iter().all(Result::is_ok), "expected no deadlock: {results:?}");
    }
    assert_eq!((processed, effects(&pool).await, transactions(&pool).await), (60, 60, 1));
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_marks_of_consumed_events_are_kept_for_their_retention(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    for id in ["old", "new"] {
        consume_one(&pool, "c", event(id), KeyOrder::Required).await.unwrap();
    }
    sqlx::query(
        "UPDATE processed_events SET processed_at = now() - interval '3 hours' WHERE event_id = 'old'",
    )
    .execute(&pool)
    .await
    .unwrap();
    // The mark of an event whose row is stored stays.
    sqlx::query(
        "INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body) VALUES ('old', 'k', 1, 'k', 1, '{}')",
    )
    .execute(&pool)
    .await
    .unwrap();
    assert_eq!(retention::prune_processed(&pool.clone().into(), Duration::from_secs(7200)).await.unwrap(), 0);
    sqlx::query("DELETE FROM outbox").execute(&pool).await.unwrap();
    assert_eq!(retention::prune_processed(&pool.clone().into(), Duration::from_secs(7200)).await.unwrap(), 1);
    assert_eq!(
        consume_one(&pool, "c", event("new"), KeyOrder::Required).await.unwrap(),
        ConsumeOutcome::Duplicate
    );
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r23_a_consumer_parks_a_poison_message_once_and_unchanged(pool: PgPool) {
    let delivery = ParkedDelivery {
        consumer: "c".into(),
        stream: "S".into(),
        stream_sequence: 7,
        published_at: Timestamp::UNIX_EPOCH,
        subject: "s.0.x".into(),
        event_id: Some("nul \0 in it".into()),
        payload: vec![0, 159, 146, 150],
        reason: "unreadable \0".into(),
        deliveries: 5,
    };
    park(&pool.clone().into(), &delivery, None).await.unwrap();
    park(&pool.clone().into(), &delivery, None).await.unwrap();
    let rows = parked_deliveries(&pool.clone().into(), 10).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].0.payload, delivery.payload);
    assert_eq!(measure(&pool.clone().into()).await.unwrap().parked_deliveries, 1);
    let request = Discard {
        consumer: "c",
        stream: "S",
        stream_sequence: delivery.stream_sequence,
        by: "ann",
        reason: "noise",
    };
    assert!(discard(&pool.clone().into(), request).await.unwrap());
    assert!(
        !discard(&pool.clone().into(), request).await.unwrap(),
        "expected a message to be discarded once"
    );
    assert_eq!(parked_deliveries(&pool.clone().into(), 10).await.unwrap(), []);
    assert_eq!(measure(&pool.clone().into()).await.unwrap().parked_deliveries, 0);
    // The broker has lost its stream, and the numbers of a new one begin again.
    let other =
        ParkedDelivery { published_at: Timestamp::UNIX_EPOCH + 1.hour(), payload: vec![1], ..delivery };
    park(&pool.clone().into(), &other, None).await.unwrap();
    let rows = parked_deliveries(&pool.clone().into(), 10).await.unwrap();
    assert_eq!(rows.iter().map(|(parked, _)| parked.payload.clone()).collect::<Vec<_>>(), [vec![1]]);
}

/// The lag counts published events without a mark: unpublished and parked events are measured separately.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_the_lag_of_a_consumer_counts_published_events_without_a_mark(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    sqlx::raw_sql(
        "INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at)
         SELECT 'e' || n, 'happened', 1, 'k', n, '{}', CASE WHEN n < 4 THEN now() - n * interval '100 s' END
         FROM generate_series(1, 4) AS n",
    )
    .execute(&pool)
    .await
    .unwrap();
    let lag = async || {
        let lag = ConsumerLagMonitor::new("c").measure(&pool.clone().into()).await.unwrap();
        (lag.unconsumed, lag.oldest_ms / 100_000)
    };
    assert_eq!(lag().await, (3, 3));
    consume_one(&pool, "c", event("e3"), KeyOrder::Required).await.unwrap();
    assert_eq!(lag().await, (2, 2));
    consume_one(&pool, "another", event("e2"), KeyOrder::Required).await.unwrap();
    assert_eq!(lag().await, (2, 2), "expected the marks of another consumer not to count");
    let poison = ParkedDelivery {
        consumer: "c".into(),
        stream: "S".into(),
        stream_sequence: 1,
        published_at: Timestamp::UNIX_EPOCH,
        subject: "s".into(),
        event_id: Some("e2".into()),
        payload: vec![],
        reason: "poison".into(),
        deliveries: 5,
    };
    park(&pool.clone().into(), &poison, None).await.unwrap();
    assert_eq!(lag().await, (1, 1));
    assert_eq!(measure(&pool.clone().into()).await.unwrap().parked_deliveries, 1);
    consume_one(&pool, "c", event("e2"), KeyOrder::Required).await.unwrap();
    assert_eq!(
        measure(&pool.clone().into()).await.unwrap().parked_deliveries,
        0,
        "expected no parked delivery after the event was processed"
    );
    consume_one(&pool, "c", event("e1"), KeyOrder::Required).await.unwrap();
    assert_eq!(lag().await, (0, 0));
    pool.close().await;
}

/// An event that the broker lost counts as lag until it is consumed, however many events were published and consumed since, and
/// after any number of measurements.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_an_event_lost_by_the_broker_counts_as_lag_until_consumed(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    let sql = async |sql| sqlx::raw_sql(sql).execute(&pool).await.unwrap();
    // 25,000 events over 25,000 s; all are consumed except one in the middle and the last one.
    sql("INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at)
         SELECT 'e' || n, 'happened', 1, 'k', n, '{}', now() - (26000 - n) * interval '1 s'
         FROM generate_series(1, 25000) AS n;
         INSERT INTO processed_events (consumer, event_id)
         SELECT 'c', 'e' || n FROM generate_series(1, 24999) AS n WHERE n <> 12000")
    .await;
    let mut monitor = ConsumerLagMonitor::new("c");
    let lag = monitor.measure(&pool.clone().into()).await.unwrap();
    assert_eq!((lag.unconsumed, lag.oldest_ms / 1_000_000), (1, 14));
    let lag = monitor.measure(&pool.clone().into()).await.unwrap();
    assert_eq!(
        (lag.unconsumed, lag.oldest_ms / 1_000_000),
        (1, 14),
        "expected the monitor not to pass the lost event"
    );

    sql("INSERT INTO processed_events (consumer, event_id) VALUES ('c', 'e12000')").await;
    let lag = monitor.measure(&pool.clone().into()).await.unwrap();
    assert_eq!(
        (lag.unconsumed, lag.oldest_ms / 1_000_000),
        (1, 1),
        "expected only the last event to be unconsumed"
    );
    sql("INSERT INTO processed_events (consumer, event_id) VALUES ('c', 'e25000')").await;
    assert_eq!(monitor.measure(&pool.clone().into()).await.unwrap(), ConsumerLag::default());
    // A late commit of a publication time before the newest event is counted too.
    sql("INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at)
         VALUES ('newest', 'happened', 1, 'k', 25002, '{}', now());
         INSERT INTO processed_events (consumer, event_id) VALUES ('c', 'newest')")
    .await;
    assert_eq!(monitor.measure(&pool.clone().into()).await.unwrap(), ConsumerLag::default());
    sql("INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at)
         VALUES ('late', 'happened', 1, 'k', 25001, '{}', now() - interval '30 s')")
    .await;
    assert_eq!(monitor.measure(&pool.clone().into()).await.unwrap().unconsumed, 1);
    pool.close().await;
}

fn unreadable(consumer: &str, stream_sequence: i64, event_id: Option<&str>) -> ParkedDelivery {
    ParkedDelivery {
        consumer: consumer.into(),
        stream: "S".into(),
        stream_sequence,
        published_at: Timestamp::UNIX_EPOCH,
        subject: "s.0.x".into(),
        event_id: event_id.map(str::to_owned),
        payload: b"{".to_vec(),
        reason: "unreadable".into(),
        deliveries: 5,
    }
}

/// Consumers and stream sequences of the parked deliveries.
async fn listed(pool: &PgPool) -> Vec<(String, i64)> {
    let rows = parked_deliveries(&pool.clone().into(), 10).await.unwrap();
    rows.into_iter().map(|(delivery, _)| (delivery.consumer, delivery.stream_sequence)).collect()
}

/// Two consumers that fail at the same message park it independently.
#[sqlx::test(migrator = "MIGRATOR")]
async fn r23_a_message_is_parked_per_consumer_until_processed_or_discarded(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    for consumer in ["c", "d"] {
        for (number, event_id) in [(7, None), (8, Some("e"))] {
            park(&pool.clone().into(), &unreadable(consumer, number, event_id), None).await.unwrap();
        }
    }
    consume_one(&pool, "c", event("e"), KeyOrder::Required).await.unwrap();
    let message = |consumer: &str, number| (consumer.to_owned(), number);
    assert_eq!(listed(&pool).await, [message("c", 7), message("d", 7), message("d", 8)]);
    let request = Discard { consumer: "d", stream: "S", stream_sequence: 7, by: "ann", reason: "noise" };
    for not_parked in [
        Discard { consumer: "nobody", ..request },
        Discard { stream: "T", ..request },
        Discard { stream_sequence: 9, ..request },
        Discard { consumer: "c", stream_sequence: 8, ..request },
    ] {
        assert!(!discard(&pool.clone().into(), not_parked).await.unwrap(), "discarded {not_parked:?}");
    }
    assert!(discard(&pool.clone().into(), request).await.unwrap());
    assert_eq!(listed(&pool).await, [message("c", 7), message("d", 8)]);
    pool.close().await;
}

/// A delivery without a decision stays at any age; with one, it stays for the retention of marks.
#[sqlx::test(migrator = "MIGRATOR")]
async fn r23_a_parked_event_delivery_is_kept_for_the_retention_after_its_end(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    for (number, event_id) in
        [(1, None), (2, Some("lost")), (3, None), (4, None), (5, Some("new")), (6, Some("old"))]
    {
        park(&pool.clone().into(), &unreadable("c", number, event_id), None).await.unwrap();
    }
    for id in ["new", "old"] {
        consume_one(&pool, "c", event(id), KeyOrder::Required).await.unwrap();
    }
    for stream_sequence in [3, 4] {
        let request = Discard { consumer: "c", stream: "S", stream_sequence, by: "ann", reason: "noise" };
        assert!(discard(&pool.clone().into(), request).await.unwrap());
    }
    sqlx::raw_sql(
        "UPDATE parked_deliveries SET parked_at = now() - interval '3 hours';
         UPDATE parked_deliveries SET discarded_at = now() - interval '3 hours' WHERE stream_sequence = 4;
         UPDATE processed_events SET processed_at = now() - interval '3 hours' WHERE event_id = 'old'",
    )
    .execute(&pool)
    .await
    .unwrap();
    retention::prune_processed(&pool.clone().into(), Duration::from_secs(7200)).await.unwrap();
    let left: Vec<i64> =
        sqlx::query_scalar("SELECT stream_sequence FROM parked_deliveries ORDER BY stream_sequence")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(left, [1, 2, 3, 5]);
    assert_eq!(
        listed(&pool).await,
        [("c".to_owned(), 1), ("c".to_owned(), 2)],
        "expected no processed delivery to be listed again"
    );
    pool.close().await;
}
