//! Consuming events once and in order, parked deliveries, their retention, and the lag (S3.6, R23).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::time::Duration;

use outbox::consume::{ConsumeOutcome, EffectError, EventEffect, KeyOrder, ParkedDelivery, consume, park};
use outbox::operator::{Discard, discard, parked_deliveries};
use outbox::{ConsumerLag, ConsumerLagMonitor, Event, MIGRATOR, measure, retention};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool};

/// Writes a row for each event.
struct WriteEffect {
    fails: bool,
}

const WRITES: WriteEffect = WriteEffect { fails: false };
const FAILS: WriteEffect = WriteEffect { fails: true };

impl EventEffect for WriteEffect {
    async fn apply(&self, tx: &mut PgConnection, event: &Event) -> Result<(), EffectError> {
        sqlx::query("INSERT INTO effects VALUES ($1)").bind(&event.event_id).execute(tx).await.unwrap();
        if self.fails { Err(EffectError::Poison("refused".into())) } else { Ok(()) }
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
        body: serde_json::json!({}),
    }
}

async fn effects(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(pool).await.unwrap()
}

/// Sixteen connections, and the table of effects.
async fn pool_with_effects(connect: PgConnectOptions) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(16).connect_with(connect).await.unwrap();
    sqlx::query("CREATE TABLE effects (event_id text NOT NULL)").execute(&pool).await.unwrap();
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
        tokio::spawn(
            async move { consume(&pool, "c", &event("e"), KeyOrder::Required, &WRITES).await.unwrap() },
        )
    });
    let mut processed = 0;
    for delivery in deliveries.collect::<Vec<_>>() {
        processed += usize::from(delivery.await.unwrap() == ConsumeOutcome::Processed);
    }
    assert_eq!((processed, effects(&pool).await), (1, 1));
    // Another consumer has its own effect.
    assert_eq!(
        consume(&pool, "d", &event("e"), KeyOrder::Required, &WRITES).await.unwrap(),
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
    assert!(consume(&pool, "c", &event("e"), KeyOrder::Required, &FAILS).await.is_err());
    assert_eq!(effects(&pool).await, 0);
    assert_eq!(
        consume(&pool, "c", &event("e"), KeyOrder::Required, &WRITES).await.unwrap(),
        ConsumeOutcome::Processed
    );
    assert_eq!(effects(&pool).await, 1);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_an_event_waits_for_the_earlier_events_of_its_key(_: PgPoolOptions, connect: PgConnectOptions) {
    let pool = pool_with_effects(connect).await;
    let numbered = |sequence: i64| Event { sequence, ..event(&format!("e{sequence}")) };
    let consume_numbered =
        async |sequence, order| consume(&pool, "c", &numbered(sequence), order, &WRITES).await.unwrap();
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
        subject: "s.0.x".into(),
        event_id: Some("e3".into()),
        payload: Vec::new(),
        reason: "refused".into(),
        deliveries: 5,
    };
    park(&pool, &delivery, Some(&numbered(3))).await.unwrap();
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
        consume(&pool, "d", &numbered(1), KeyOrder::Required, &WRITES).await.unwrap(),
        ConsumeOutcome::Processed
    );
    let other = Event { event_id: "o1".into(), ..other };
    assert_eq!(
        consume(&pool, "c", &other, KeyOrder::Required, &WRITES).await.unwrap(),
        ConsumeOutcome::Processed
    );
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_marks_of_consumed_events_are_kept_for_their_retention(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = pool_with_effects(connect).await;
    for id in ["old", "new"] {
        consume(&pool, "c", &event(id), KeyOrder::Required, &WRITES).await.unwrap();
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
    assert_eq!(retention::prune_processed(&pool, Duration::from_secs(7200)).await.unwrap(), 0);
    sqlx::query("DELETE FROM outbox").execute(&pool).await.unwrap();
    assert_eq!(retention::prune_processed(&pool, Duration::from_secs(7200)).await.unwrap(), 1);
    assert_eq!(
        consume(&pool, "c", &event("new"), KeyOrder::Required, &WRITES).await.unwrap(),
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
        subject: "s.0.x".into(),
        event_id: Some("nul \0 in it".into()),
        payload: vec![0, 159, 146, 150],
        reason: "unreadable \0".into(),
        deliveries: 5,
    };
    park(&pool, &delivery, None).await.unwrap();
    park(&pool, &delivery, None).await.unwrap();
    let rows = parked_deliveries(&pool, 10).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].0.payload, delivery.payload);
    assert_eq!(measure(&pool).await.unwrap().parked_deliveries, 1);
    let request = Discard {
        consumer: "c",
        stream: "S",
        stream_sequence: delivery.stream_sequence,
        by: "ann",
        reason: "noise",
    };
    assert!(discard(&pool, request).await.unwrap());
    assert!(!discard(&pool, request).await.unwrap(), "expected a message to be discarded once");
    assert_eq!(parked_deliveries(&pool, 10).await.unwrap(), []);
    assert_eq!(measure(&pool).await.unwrap().parked_deliveries, 0);
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
        let lag = ConsumerLagMonitor::new("c").measure(&pool).await.unwrap();
        (lag.unconsumed, lag.oldest_ms / 100_000)
    };
    assert_eq!(lag().await, (3, 3));
    consume(&pool, "c", &event("e3"), KeyOrder::Required, &WRITES).await.unwrap();
    assert_eq!(lag().await, (2, 2));
    consume(&pool, "another", &event("e2"), KeyOrder::Required, &WRITES).await.unwrap();
    assert_eq!(lag().await, (2, 2), "expected the marks of another consumer not to count");
    let poison = ParkedDelivery {
        consumer: "c".into(),
        stream: "S".into(),
        stream_sequence: 1,
        subject: "s".into(),
        event_id: Some("e2".into()),
        payload: vec![],
        reason: "poison".into(),
        deliveries: 5,
    };
    park(&pool, &poison, None).await.unwrap();
    assert_eq!(lag().await, (1, 1));
    assert_eq!(measure(&pool).await.unwrap().parked_deliveries, 1);
    consume(&pool, "c", &event("e2"), KeyOrder::Required, &WRITES).await.unwrap();
    assert_eq!(
        measure(&pool).await.unwrap().parked_deliveries,
        0,
        "expected no parked delivery after the event was processed"
    );
    consume(&pool, "c", &event("e1"), KeyOrder::Required, &WRITES).await.unwrap();
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
    let lag = monitor.measure(&pool).await.unwrap();
    assert_eq!((lag.unconsumed, lag.oldest_ms / 1_000_000), (1, 14));
    let lag = monitor.measure(&pool).await.unwrap();
    assert_eq!(
        (lag.unconsumed, lag.oldest_ms / 1_000_000),
        (1, 14),
        "expected the monitor not to pass the lost event"
    );

    sql("INSERT INTO processed_events (consumer, event_id) VALUES ('c', 'e12000')").await;
    let lag = monitor.measure(&pool).await.unwrap();
    assert_eq!(
        (lag.unconsumed, lag.oldest_ms / 1_000_000),
        (1, 1),
        "expected only the last event to be unconsumed"
    );
    sql("INSERT INTO processed_events (consumer, event_id) VALUES ('c', 'e25000')").await;
    assert_eq!(monitor.measure(&pool).await.unwrap(), ConsumerLag::default());
    // A late commit of a publication time before the newest event is counted too.
    sql("INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at)
         VALUES ('newest', 'happened', 1, 'k', 25002, '{}', now());
         INSERT INTO processed_events (consumer, event_id) VALUES ('c', 'newest')")
    .await;
    assert_eq!(monitor.measure(&pool).await.unwrap(), ConsumerLag::default());
    sql("INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at)
         VALUES ('late', 'happened', 1, 'k', 25001, '{}', now() - interval '30 s')")
    .await;
    assert_eq!(monitor.measure(&pool).await.unwrap().unconsumed, 1);
    pool.close().await;
}

fn unreadable(consumer: &str, stream_sequence: i64, event_id: Option<&str>) -> ParkedDelivery {
    ParkedDelivery {
        consumer: consumer.into(),
        stream: "S".into(),
        stream_sequence,
        subject: "s.0.x".into(),
        event_id: event_id.map(str::to_owned),
        payload: b"{".to_vec(),
        reason: "unreadable".into(),
        deliveries: 5,
    }
}

/// Consumers and stream sequences of the parked deliveries.
async fn listed(pool: &PgPool) -> Vec<(String, i64)> {
    let rows = parked_deliveries(pool, 10).await.unwrap();
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
            park(&pool, &unreadable(consumer, number, event_id), None).await.unwrap();
        }
    }
    consume(&pool, "c", &event("e"), KeyOrder::Required, &WRITES).await.unwrap();
    let message = |consumer: &str, number| (consumer.to_owned(), number);
    assert_eq!(listed(&pool).await, [message("c", 7), message("d", 7), message("d", 8)]);
    let request = Discard { consumer: "d", stream: "S", stream_sequence: 7, by: "ann", reason: "noise" };
    for not_parked in [
        Discard { consumer: "nobody", ..request },
        Discard { stream: "T", ..request },
        Discard { stream_sequence: 9, ..request },
        Discard { consumer: "c", stream_sequence: 8, ..request },
    ] {
        assert!(!discard(&pool, not_parked).await.unwrap(), "discarded {not_parked:?}");
    }
    assert!(discard(&pool, request).await.unwrap());
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
        park(&pool, &unreadable("c", number, event_id), None).await.unwrap();
    }
    for id in ["new", "old"] {
        consume(&pool, "c", &event(id), KeyOrder::Required, &WRITES).await.unwrap();
    }
    for stream_sequence in [3, 4] {
        let request = Discard { consumer: "c", stream: "S", stream_sequence, by: "ann", reason: "noise" };
        assert!(discard(&pool, request).await.unwrap());
    }
    sqlx::raw_sql(
        "UPDATE parked_deliveries SET parked_at = now() - interval '3 hours';
         UPDATE parked_deliveries SET discarded_at = now() - interval '3 hours' WHERE stream_sequence = 4;
         UPDATE processed_events SET processed_at = now() - interval '3 hours' WHERE event_id = 'old'",
    )
    .execute(&pool)
    .await
    .unwrap();
    retention::prune_processed(&pool, Duration::from_secs(7200)).await.unwrap();
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
