//! A consumer's effect happens once, however often the event comes (S3.6).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use outbox::intake::{Discard, Effect, EffectError, ParkedDelivery, Taken, Turn, park, parked, take_in};
use outbox::{Behind, Event, MIGRATOR, Watch, keep};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool};

/// Counts in a table.
struct Counts {
    fails: bool,
}

impl Effect for Counts {
    async fn apply(&self, tx: &mut PgConnection, event: &Event) -> Result<(), EffectError> {
        sqlx::query("INSERT INTO effects VALUES ($1)").bind(&event.event_id).execute(tx).await.unwrap();
        if self.fails { Err(EffectError::Poison("no".into())) } else { Ok(()) }
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

async fn crowded(connect: PgConnectOptions) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(16).connect_with(connect).await.unwrap();
    sqlx::query("CREATE TABLE effects (event_id text NOT NULL)").execute(&pool).await.unwrap();
    pool
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_an_event_delivered_sixteen_times_at_once_has_one_effect(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = crowded(connect).await;
    let deliveries = (0..16).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move {
            take_in(&pool, "c", &event("e"), Turn::Kept, &Counts { fails: false }).await.unwrap()
        })
    });
    let mut now = 0;
    for delivery in deliveries.collect::<Vec<_>>() {
        now += usize::from(delivery.await.unwrap() == Taken::Now);
    }
    assert_eq!((now, effects(&pool).await), (1, 1));
    // Another consumer has an effect of its own.
    assert_eq!(
        take_in(&pool, "d", &event("e"), Turn::Kept, &Counts { fails: false }).await.unwrap(),
        Taken::Now
    );
    assert_eq!(effects(&pool).await, 2);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_an_effect_that_fails_leaves_no_mark(_: PgPoolOptions, connect: PgConnectOptions) {
    let pool = crowded(connect).await;
    assert!(take_in(&pool, "c", &event("e"), Turn::Kept, &Counts { fails: true }).await.is_err());
    assert_eq!(effects(&pool).await, 0);
    assert_eq!(
        take_in(&pool, "c", &event("e"), Turn::Kept, &Counts { fails: false }).await.unwrap(),
        Taken::Now
    );
    assert_eq!(effects(&pool).await, 1);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_an_event_waits_for_the_earlier_ones_of_its_key(_: PgPoolOptions, connect: PgConnectOptions) {
    let pool = crowded(connect).await;
    let counts = Counts { fails: false };
    let numbered = |sequence: i64| Event { sequence, ..event(&format!("e{sequence}")) };
    let take = async |sequence, turn| take_in(&pool, "c", &numbered(sequence), turn, &counts).await.unwrap();
    assert_eq!(take(2, Turn::Kept).await, Taken::TooEarly);
    assert_eq!(effects(&pool).await, 0);
    assert_eq!(take(1, Turn::Kept).await, Taken::Now);
    assert_eq!(take(2, Turn::Kept).await, Taken::Now);
    assert_eq!(take(1, Turn::Kept).await, Taken::Before);
    // One that is given up keeps nobody back, and neither does one that was waited for long enough.
    let delivery = ParkedDelivery {
        consumer: "c".into(),
        stream: "S".into(),
        stream_sequence: 3,
        subject: "s.0.x".into(),
        event_id: Some("e3".into()),
        payload: Vec::new(),
        reason: "no".into(),
        deliveries: 5,
    };
    park(&pool, &delivery, Some(&numbered(3))).await.unwrap();
    assert_eq!(take(4, Turn::Kept).await, Taken::Now);
    assert_eq!(take(6, Turn::Kept).await, Taken::TooEarly);
    assert_eq!(take(6, Turn::Waived).await, Taken::Now);
    assert_eq!(take(5, Turn::Kept).await, Taken::Now, "it comes late, and is not lost");
    assert_eq!(take(7, Turn::Kept).await, Taken::Now, "nobody goes back");
    // Another consumer and another key have turns of their own.
    let other = Event { key: "another".into(), ..numbered(1) };
    assert_eq!(take_in(&pool, "d", &numbered(1), Turn::Kept, &counts).await.unwrap(), Taken::Now);
    let other = Event { event_id: "o1".into(), ..other };
    assert_eq!(take_in(&pool, "c", &other, Turn::Kept, &counts).await.unwrap(), Taken::Now);
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_marks_are_kept_for_as_long_as_is_said(_: PgPoolOptions, connect: PgConnectOptions) {
    let pool = crowded(connect).await;
    for id in ["old", "new"] {
        take_in(&pool, "c", &event(id), Turn::Kept, &Counts { fails: false }).await.unwrap();
    }
    sqlx::query(
        "UPDATE processed_events SET processed_at = now() - interval '3 hours' WHERE event_id = 'old'",
    )
    .execute(&pool)
    .await
    .unwrap();
    // As long as there is a row that could be published again, its mark stays.
    sqlx::query(
        "INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body) VALUES ('old', 'k', 1, 'k', 1, '{}')",
    )
    .execute(&pool)
    .await
    .unwrap();
    assert_eq!(keep::prune_processed(&pool, Duration::from_secs(7200)).await.unwrap(), 0);
    sqlx::query("DELETE FROM outbox").execute(&pool).await.unwrap();
    assert_eq!(keep::prune_processed(&pool, Duration::from_secs(7200)).await.unwrap(), 1);
    assert_eq!(
        take_in(&pool, "c", &event("new"), Turn::Kept, &Counts { fails: false }).await.unwrap(),
        Taken::Before
    );
    pool.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r23_a_poisonous_message_is_parked_as_it_came_and_once(pool: PgPool) {
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
    let rows = parked(&pool, 10).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].0.payload, delivery.payload);
    assert_eq!(outbox::measure(&pool).await.unwrap().parked_deliveries, 1);
    let discard = Discard {
        consumer: "c",
        stream: "S",
        stream_sequence: delivery.stream_sequence,
        by: "ann",
        reason: "noise",
    };
    assert!(outbox::intake::discard(&pool, discard).await.unwrap());
    assert!(!outbox::intake::discard(&pool, discard).await.unwrap(), "once");
    assert_eq!(parked(&pool, 10).await.unwrap(), []);
    assert_eq!(outbox::measure(&pool).await.unwrap().parked_deliveries, 0);
}

/// By its marks, whether it runs or not; what is not published yet is the relay's delay, what is parked is shown elsewhere.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_how_far_a_consumer_is_behind_is_measured(_: PgPoolOptions, connect: PgConnectOptions) {
    let pool = crowded(connect).await;
    sqlx::raw_sql(
        "INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at)
         SELECT 'e' || n, 'happened', 1, 'k', n, '{}', CASE WHEN n < 4 THEN now() - n * interval '100 s' END
         FROM generate_series(1, 4) AS n",
    )
    .execute(&pool)
    .await
    .unwrap();
    let behind = async || {
        let behind = Watch::new("c").measure(&pool).await.unwrap();
        (behind.events, behind.oldest_ms / 100_000)
    };
    assert_eq!(behind().await, (3, 3));
    take_in(&pool, "c", &event("e3"), Turn::Kept, &Counts { fails: false }).await.unwrap();
    assert_eq!(behind().await, (2, 2));
    take_in(&pool, "another", &event("e2"), Turn::Kept, &Counts { fails: false }).await.unwrap();
    assert_eq!(behind().await, (2, 2), "another's marks are not its own");
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
    assert_eq!(behind().await, (1, 1));
    assert_eq!(outbox::measure(&pool).await.unwrap().parked_deliveries, 1);
    take_in(&pool, "c", &event("e2"), Turn::Kept, &Counts { fails: false }).await.unwrap();
    assert_eq!(outbox::measure(&pool).await.unwrap().parked_deliveries, 0, "it was published again");
    take_in(&pool, "c", &event("e1"), Turn::Kept, &Counts { fails: false }).await.unwrap();
    assert_eq!(behind().await, (0, 0));
    pool.close().await;
}

/// What the broker lost stays in sight, however much was published and taken in since, and by a watch that has gone on.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_a_lost_event_is_seen_behind_any_number_of_others(_: PgPoolOptions, connect: PgConnectOptions) {
    let pool = crowded(connect).await;
    let sql = async |sql| sqlx::raw_sql(sql).execute(&pool).await.unwrap();
    // 25,000 events over 25,000 s, all taken in but one in the middle and the very last.
    sql("INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at)
         SELECT 'e' || n, 'happened', 1, 'k', n, '{}', now() - (26000 - n) * interval '1 s'
         FROM generate_series(1, 25000) AS n;
         INSERT INTO processed_events (consumer, event_id)
         SELECT 'c', 'e' || n FROM generate_series(1, 24999) AS n WHERE n <> 12000")
    .await;
    let mut watch = Watch::new("c");
    let one = watch.measure(&pool).await.unwrap();
    assert_eq!((one.events, one.oldest_ms / 1_000_000), (1, 14));
    let again = watch.measure(&pool).await.unwrap();
    assert_eq!((again.events, again.oldest_ms / 1_000_000), (1, 14), "it stays where the lost one is");

    sql("INSERT INTO processed_events (consumer, event_id) VALUES ('c', 'e12000')").await;
    let last = watch.measure(&pool).await.unwrap();
    assert_eq!((last.events, last.oldest_ms / 1_000_000), (1, 1), "past everything that was taken in");
    sql("INSERT INTO processed_events (consumer, event_id) VALUES ('c', 'e25000')").await;
    assert_eq!(watch.measure(&pool).await.unwrap(), Behind::default());
    // A commit that came late is seen behind what the watch has seen.
    sql("INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at)
         VALUES ('newest', 'happened', 1, 'k', 25002, '{}', now());
         INSERT INTO processed_events (consumer, event_id) VALUES ('c', 'newest')")
    .await;
    assert_eq!(watch.measure(&pool).await.unwrap(), Behind::default());
    sql("INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at)
         VALUES ('late', 'happened', 1, 'k', 25001, '{}', now() - interval '30 s')")
    .await;
    assert_eq!(watch.measure(&pool).await.unwrap().events, 1);
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

async fn listed(pool: &PgPool) -> Vec<(String, i64)> {
    let rows = parked(pool, 10).await.unwrap();
    rows.into_iter().map(|(one, _)| (one.consumer, one.stream_sequence)).collect()
}

/// Two consumers may fail at the same message: each is a matter of its own, until it took it in or a person let go of it.
#[sqlx::test(migrator = "MIGRATOR")]
async fn r23_what_is_parked_is_its_consumers_until_it_is_taken_in_or_discarded(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = crowded(connect).await;
    for consumer in ["c", "d"] {
        for (number, event_id) in [(7, None), (8, Some("e"))] {
            park(&pool, &unreadable(consumer, number, event_id), None).await.unwrap();
        }
    }
    take_in(&pool, "c", &event("e"), Turn::Kept, &Counts { fails: false }).await.unwrap();
    let of = |consumer: &str, number| (consumer.to_owned(), number);
    assert_eq!(listed(&pool).await, [of("c", 7), of("d", 7), of("d", 8)]);
    let discard = Discard { consumer: "d", stream: "S", stream_sequence: 7, by: "ann", reason: "noise" };
    for not_there in [
        Discard { consumer: "nobody", ..discard },
        Discard { stream: "T", ..discard },
        Discard { stream_sequence: 9, ..discard },
        Discard { consumer: "c", stream_sequence: 8, ..discard },
    ] {
        assert!(!outbox::intake::discard(&pool, not_there).await.unwrap(), "{not_there:?}");
    }
    assert!(outbox::intake::discard(&pool, discard).await.unwrap());
    assert_eq!(listed(&pool).await, [of("c", 7), of("d", 8)]);
    pool.close().await;
}

/// What nobody has decided about stays, however old; what was, is a record for as long as marks are.
#[sqlx::test(migrator = "MIGRATOR")]
async fn r23_what_is_parked_is_kept_until_long_after_it_was_decided(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = crowded(connect).await;
    for (number, event_id) in
        [(1, None), (2, Some("lost")), (3, None), (4, None), (5, Some("new")), (6, Some("old"))]
    {
        park(&pool, &unreadable("c", number, event_id), None).await.unwrap();
    }
    for id in ["new", "old"] {
        take_in(&pool, "c", &event(id), Turn::Kept, &Counts { fails: false }).await.unwrap();
    }
    for stream_sequence in [3, 4] {
        let discard = Discard { consumer: "c", stream: "S", stream_sequence, by: "ann", reason: "noise" };
        assert!(outbox::intake::discard(&pool, discard).await.unwrap());
    }
    sqlx::raw_sql(
        "UPDATE parked_deliveries SET parked_at = now() - interval '3 hours';
         UPDATE parked_deliveries SET discarded_at = now() - interval '3 hours' WHERE stream_sequence = 4;
         UPDATE processed_events SET processed_at = now() - interval '3 hours' WHERE event_id = 'old'",
    )
    .execute(&pool)
    .await
    .unwrap();
    keep::prune_processed(&pool, Duration::from_secs(7200)).await.unwrap();
    let left: Vec<i64> =
        sqlx::query_scalar("SELECT stream_sequence FROM parked_deliveries ORDER BY stream_sequence")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(left, [1, 2, 3, 5]);
    assert_eq!(listed(&pool).await, [("c".to_owned(), 1), ("c".to_owned(), 2)], "and none is parked anew");
    pool.close().await;
}
