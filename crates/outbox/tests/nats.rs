//! The whole way over a real broker that is killed, paused and poisoned (R23, R32, S3.5, S3.6).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::message::PublishMessage;
use outbox::intake::{self, Effect, EffectError};
use outbox::nats::{Broker, BrokerOptions, Consumer, ConsumerOptions, JetStream};
use outbox::{Event, MIGRATOR, NewEvent, append, keep};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool};
use support::{Running, options, until, until_all_published, write};
use testkit::NatsServer as Server;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const CONSUMER: &str = "test";

/// Writes what it took in, in order; cannot take in an event whose body says so.
struct Log;

impl Effect for Log {
    async fn apply(&self, tx: &mut PgConnection, event: &Event) -> Result<(), EffectError> {
        if event.body["poison"] == json!(true) {
            return Err(EffectError::Poison("it says so".into()));
        }
        let written = sqlx::query("INSERT INTO effects (event_id, key, sequence) VALUES ($1, $2, $3)")
            .bind(&event.event_id)
            .bind(&event.key)
            .bind(event.sequence)
            .execute(tx)
            .await;
        written.map(|_| ()).map_err(|error| EffectError::Unavailable(error.into()))
    }
}

/// A consumer that runs until it is dropped.
struct Taking(JoinHandle<()>);

impl Drop for Taking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Line {
    server: Server,
    options: BrokerOptions,
    pool: PgPool,
}

impl Line {
    async fn new(name: &str, connect: PgConnectOptions) -> Self {
        let pool = PgPoolOptions::new().max_connections(12).connect_with(connect).await.unwrap();
        sqlx::query(
            "CREATE TABLE effects (position bigint GENERATED ALWAYS AS IDENTITY, event_id text, key text, sequence bigint)",
        )
        .execute(&pool)
        .await
        .unwrap();
        let server = Server::start(name).await.unwrap();
        let options = BrokerOptions { url: server.url(), ..BrokerOptions::default() };
        Self { server, options, pool }
    }

    async fn relay(&self) -> Running {
        let broker = Broker::connect(&self.options, "relay").await.unwrap();
        Running::start(&self.pool, JetStream::new(broker), options())
    }

    async fn take(&self) -> Taking {
        self.take_as(CONSUMER).await
    }

    async fn take_as(&self, name: &str) -> Taking {
        self.take_with(ConsumerOptions::new(name)).await
    }

    /// An event is put off so often for the one before it.
    async fn take_and_wait_for(&self, turns_max: u32) -> Taking {
        self.take_with(ConsumerOptions { turns_max, ..ConsumerOptions::new(CONSUMER) }).await
    }

    async fn take_with(&self, options: ConsumerOptions) -> Taking {
        let broker = Broker::connect(&self.options, &options.name).await.unwrap();
        let options = ConsumerOptions {
            ack_wait: Duration::from_secs(1),
            deliveries_max: 3,
            again_after: Duration::from_millis(20),
            ..options
        };
        let consumer = Consumer::new(broker, self.pool.clone(), Log, options);
        Taking(tokio::spawn(async move { consumer.run(&CancellationToken::new()).await }))
    }

    /// Puts an event into the stream as if the relay had, whatever comes before it.
    async fn put(&self, sequence: i64) {
        let event = Event {
            event_id: format!("key-0:{sequence}"),
            kind: "happened".into(),
            version: 1,
            key: "key-0".into(),
            sequence,
            appended_at: jiff::Timestamp::UNIX_EPOCH,
            body: json!({}),
        };
        let payload = serde_json::to_vec(&event).unwrap();
        let raw = self.raw().await;
        raw.publish("events.0.happened", payload.into()).await.unwrap().await.unwrap();
    }

    /// A connection that is there.
    async fn broker(&self) -> Broker {
        let broker = Broker::connect(&self.options, "test").await.unwrap();
        until("it is connected", async || broker.is_connected().is_ok()).await;
        broker
    }

    async fn taken_by(&self, consumer: &str) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM processed_events WHERE consumer = $1")
            .bind(consumer)
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }

    /// Has the broker killed and started again: it knows the ids of what it still has, and no others.
    async fn restart(&mut self) {
        self.server.kill().await.unwrap();
        self.server.restart().await.unwrap();
    }

    /// The stream itself, past the relay.
    async fn raw(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(&self.options.url).await.unwrap())
    }

    async fn effects(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(&self.pool).await.unwrap()
    }

    async fn until_effects(&self, count: i64) {
        until("everything had its effect", async || self.effects().await >= count).await;
        assert_eq!(self.effects().await, count);
    }

    /// The numbers of each key in the order of their effects.
    async fn orders(&self) -> BTreeMap<String, Vec<i64>> {
        let rows: Vec<(String, i64)> = sqlx::query_as("SELECT key, sequence FROM effects ORDER BY position")
            .fetch_all(&self.pool)
            .await
            .unwrap();
        let mut orders: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (key, sequence) in rows {
            orders.entry(key).or_default().push(sequence);
        }
        orders
    }
}

fn in_order(keys: i64, count: i64) -> BTreeMap<String, Vec<i64>> {
    (0..keys).map(|key| (format!("key-{key}"), (1..=count).collect())).collect()
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_s3_6_events_have_their_effect_once_and_in_order(_: PgPoolOptions, connect: PgConnectOptions) {
    let line = Line::new("events", connect).await;
    // The consumer comes first and finds neither stream nor events.
    let taking = line.take().await;
    let relay = line.relay().await;
    for n in 1..=10 {
        for key in 0..8 {
            write(&line.pool, &format!("key-{key}"), n).await;
        }
    }
    line.until_effects(80).await;
    assert_eq!(line.orders().await, in_order(8, 10));
    // The last ones may have had their effect before they were marked.
    until_all_published(&line.pool).await;

    // The broker knows the ids no more (a new stream, which the relay makes), so all of it comes again.
    drop(taking);
    line.raw().await.delete_stream("EVENTS").await.unwrap();
    assert_eq!(keep::republish(&line.pool, Duration::from_secs(600)).await.unwrap(), 80);
    until_all_published(&line.pool).await;
    let taking = line.take().await;
    write(&line.pool, "key-0", 11).await;
    line.until_effects(81).await;
    relay.stop().await;
    drop(taking);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_broker_that_is_killed_and_paused_loses_nothing_and_keeps_the_order(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let mut line = Line::new("broker-down", connect).await;
    let (relay, taking) = (line.relay().await, line.take().await);
    let (pool, stop) = (line.pool.clone(), CancellationToken::new());
    let stopped = stop.clone();
    // Writes for as long as the broker is in trouble: what is written while it is down has to wait.
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
        let before = line.effects().await;
        until("events flow", async || line.effects().await > before).await;
        // Killed at once, paused, or killed while it is paused.
        let (pauses, dies) = (round % 3 != 0, round % 3 != 1);
        if pauses {
            line.server.pause().unwrap();
        }
        if dies {
            line.server.kill().await.unwrap();
        }
        until("events wait", async || outbox::measure(&line.pool).await.unwrap().oldest_ms > 300).await;
        if dies {
            line.server.restart().await.unwrap();
        } else {
            line.server.resume().unwrap();
        }
    }
    stop.cancel();
    let written = writing.await.unwrap();
    until_all_published(&line.pool).await;
    line.until_effects(5 * written).await;
    assert_eq!(line.orders().await, in_order(5, written));
    relay.stop().await;
    drop(taking);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_consumer_that_dies_before_many_messages_is_followed_in_order(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    dies_over_its_first_of(10, Line::new("consumer-dies-before", connect).await).await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_consumer_that_dies_over_a_message_is_followed_in_order(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    dies_over_its_first_of(1, Line::new("consumer-dies-over", connect).await).await;
}

/// A consumer dies over the first of so many events, the others of ten come after its death, and another goes on.
async fn dies_over_its_first_of(written_before: i64, line: Line) {
    let relay = line.relay().await;
    for n in 1..=written_before {
        write(&line.pool, "key-0", n).await;
    }
    until_all_published(&line.pool).await;
    // Effects cannot be written, so a message is under way when the consumer goes.
    let mut lock = line.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE effects IN SHARE MODE").execute(&mut *lock).await.unwrap();
    let first = line.take().await;
    until("a message is under way", async || {
        sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'effects'::regclass
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .fetch_one(&line.pool)
        .await
        .unwrap()
            > 0
    })
    .await;
    drop(first);
    // These could be taken in at once; the first comes again only after a second.
    for n in written_before + 1..=10 {
        write(&line.pool, "key-0", n).await;
    }
    let second = line.take().await;
    lock.rollback().await.unwrap();
    line.until_effects(10).await;
    assert_eq!(line.orders().await, in_order(1, 10));
    relay.stop().await;
    drop(second);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_6_what_comes_before_its_turn_waits_and_not_for_ever(_: PgPoolOptions, connect: PgConnectOptions) {
    let line = Line::new("turns", connect).await;
    line.broker().await.stream().await.unwrap();
    for sequence in [3, 2, 1] {
        line.put(sequence).await;
    }
    let taking = line.take().await;
    line.until_effects(3).await;
    assert_eq!(line.orders().await, in_order(1, 3));
    drop(taking);

    // The fourth never comes.
    line.put(5).await;
    let taking = line.take_and_wait_for(3).await;
    line.until_effects(4).await;
    drop(taking);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r23_poison_is_parked_on_both_sides_and_the_others_go_on(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let line = Line::new("poison", connect).await;
    let relay = line.relay().await;
    write(&line.pool, "key-0", 1).await;
    until_all_published(&line.pool).await;
    // What is no event at all stands in each lane before everything else, and what PostgreSQL cannot hold.
    let raw = line.raw().await;
    for lane in 0..outbox::nats::LANES {
        let message =
            PublishMessage::build().payload(vec![b'{', 0, 255].into()).message_id(format!("no-event-{lane}"));
        raw.send_publish(format!("events.{lane}.happened"), message).await.unwrap().await.unwrap();
    }
    let nul = json!({"event_id": "nul \0", "kind": "happened", "version": 1, "key": "k", "sequence": 1,
        "appended_at": "2026-01-01T00:00:00Z", "body": {}});
    raw.publish("events.0.happened", nul.to_string().into()).await.unwrap().await.unwrap();
    // The broker takes no message of two megabytes.
    let large = json!({"text": "x".repeat(2 << 20)});
    let poison = json!({"poison": true});
    let mut tx = line.pool.begin().await.unwrap();
    for (event_id, kind, key, body) in [
        ("large", "happened", "key-large", &large),
        ("nowhere", "not.a.token", "key-nowhere", &poison),
        ("poison", "happened", "key-poison", &poison),
    ] {
        append(&mut tx, NewEvent { event_id, kind, version: 1, key, body }).await.unwrap();
    }
    tx.commit().await.unwrap();
    let taking = line.take().await;
    for n in 2..=6 {
        write(&line.pool, "key-0", n).await;
    }
    line.until_effects(6).await;
    until("poison is parked", async || {
        let now = outbox::measure(&line.pool).await.unwrap();
        (now.parked, now.unpublished, now.parked_deliveries) == (2, 0, 10)
    })
    .await;
    let refused: Vec<String> =
        keep::parked(&line.pool, 10).await.unwrap().into_iter().map(|parked| parked.event_id).collect();
    assert_eq!(refused, ["large", "nowhere"]);
    let parked = intake::parked(&line.pool, 20).await.unwrap();
    assert!(parked.iter().all(|(one, _)| one.deliveries == 3), "{parked:?}");
    assert_eq!(parked.iter().filter(|(one, _)| one.event_id.as_deref() == Some("poison")).count(), 1);
    let by_message = parked.iter().filter(|(one, _)| one.event_id.as_deref() == Some("no-event-3")).count();
    assert_eq!(by_message, 1, "its id can be read");
    assert_eq!(line.orders().await, in_order(1, 6));
    relay.stop().await;
    drop(taking);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_broker_that_is_killed_keeps_what_somebody_has_not_taken_in(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let mut line = Line::new("behind", connect).await;
    // One takes everything in and one nothing, each in all lanes.
    let behind = line.take_as("behind").await;
    let relay = line.relay().await;
    write(&line.pool, "key-0", 1).await;
    until("the one who will be behind has its places", async || line.taken_by("behind").await == 1).await;
    drop(behind);
    let taking = line.take().await;
    for n in 2..=20 {
        for key in 0..8 {
            write(&line.pool, &format!("key-{key}"), if key == 0 { n } else { n - 1 }).await;
        }
    }
    until_all_published(&line.pool).await;
    until("one has all", async || line.taken_by(CONSUMER).await == 1 + 19 * 8).await;
    drop(taking);
    for _ in 0..3 {
        line.restart().await;
    }
    let behind = line.take_as("behind").await;
    until("the other has all, too", async || line.taken_by("behind").await == 1 + 19 * 8).await;
    drop(behind);
    relay.stop().await;
}

/// Also what a lost disk of the broker comes to.
#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_what_a_stream_had_that_is_gone_is_told_when_it_is_republished(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let line = Line::new("anew", connect).await;
    let relay = line.relay().await;
    for n in 1..=5 {
        write(&line.pool, "key-0", n).await;
    }
    until_all_published(&line.pool).await;
    line.raw().await.delete_stream("EVENTS").await.unwrap();
    for n in 1..=5 {
        write(&line.pool, "key-1", n).await;
    }
    until_all_published(&line.pool).await;
    let taking = line.take().await;
    line.until_effects(5).await;
    assert_eq!(keep::republish(&line.pool, Duration::from_secs(600)).await.unwrap(), 10);
    line.until_effects(10).await;
    assert_eq!(line.orders().await, in_order(2, 5));
    drop(taking);
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_a_full_stream_makes_room_and_the_bounds_can_be_changed(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let mut line = Line::new("bounds", connect).await;
    line.options.max_bytes = 30_000;
    let relay = line.relay().await;
    for key in 0..200 {
        write(&line.pool, &format!("key-{key}"), 1).await;
    }
    // Nobody takes anything in, and nobody waits for that.
    until_all_published(&line.pool).await;
    relay.stop().await;
    let mut stream = line.raw().await.get_stream("EVENTS").await.unwrap();
    let kept = stream.info().await.unwrap().state.messages;
    assert!((20..180).contains(&kept), "{kept}");
    // A broker that was started again does not take what made room for a duplicate.
    line.restart().await;

    // Other bounds are the stream's from the next start on.
    line.options.max_bytes = 1 << 20;
    line.options.max_age_s = 3_600;
    let broker = line.broker().await;
    let bounds = broker.stream().await.unwrap().cached_info().config.clone();
    assert_eq!((bounds.max_bytes, bounds.max_age), (1 << 20, Duration::from_secs(3_600)));

    let relay = line.relay().await;
    let taking = line.take().await;
    line.until_effects(kept.try_into().unwrap()).await;
    assert_eq!(keep::republish(&line.pool, Duration::from_secs(600)).await.unwrap(), 200);
    line.until_effects(200).await;
    drop(taking);
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_a_stream_that_is_another_is_left_alone(_: PgPoolOptions, connect: PgConnectOptions) {
    let line = Line::new("other-stream", connect).await;
    let another = jetstream::stream::Config {
        name: "EVENTS".into(),
        subjects: vec!["others.>".into()],
        ..Default::default()
    };
    line.raw().await.create_stream(another).await.unwrap();
    let refused = line.broker().await.stream().await.unwrap_err().to_string();
    assert!(refused.contains("EVENTS") && refused.contains("its subjects"), "{refused}");
}
