//! The relay with a broker in memory that rejects, fails and recovers, and beside another relay (S3.5, R23, R32).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outbox::{MIGRATOR, PublishError, RelayOptions, operator, retention, wake_relay};
use sqlx::PgPool;
use support::{
    MemoryBroker, RunningRelay, SequencesByKey, answer_lost, event_lost, options, unpublished, until,
    until_all_published, write,
};

fn rejected() -> PublishError {
    PublishError::Rejected { reason: "too large".into() }
}

/// Writes `count` events of each key, all keys in turn; returns the expected sequence numbers.
async fn write_all(pool: &PgPool, keys: &[&str], count: i64) -> SequencesByKey {
    for n in 1..=count {
        for key in keys {
            write(pool, key, n).await;
        }
    }
    keys.iter().map(|key| ((*key).to_owned(), (1..=count).collect())).collect()
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_the_relay_publishes_events_in_order_within_each_key(pool: PgPool) {
    let broker = MemoryBroker::new(|_, _| Ok(()));
    let relay = RunningRelay::start(&pool, broker.clone(), options());
    let expected = write_all(&pool, &["a", "b", "c", "d"], 20).await;
    until_all_published(&pool).await;
    assert_eq!(broker.sequences(), expected);
    assert_eq!(broker.receipts("a-1"), 1, "expected a confirmed event to be published once");
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_the_relay_republishes_unconfirmed_events_in_order(pool: PgPool) {
    // Of every third event, the first attempt is lost, and the answer to the second.
    let broker = MemoryBroker::new(|event, attempt| match (event.sequence % 3, attempt) {
        (0, 1) => Err(event_lost()),
        (0, 2) => Err(answer_lost()),
        _ => Ok(()),
    });
    let expected = write_all(&pool, &["a", "b", "c"], 12).await;
    let relay = RunningRelay::start(&pool, broker.clone(), options());
    until_all_published(&pool).await;
    assert_eq!(broker.sequences(), expected);
    assert_eq!((broker.receipts("b-3"), broker.receipts("b-4")), (2, 1));
    assert_eq!(
        outbox::measure(&pool.clone().into()).await.unwrap().parked,
        0,
        "expected no parked event without a rejection"
    );
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_the_relay_lag_rises_while_the_broker_is_down_and_falls_afterwards(pool: PgPool) {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = up.clone();
    let broker =
        MemoryBroker::new(move |_, _| if is_up.load(Ordering::Relaxed) { Ok(()) } else { Err(event_lost()) });
    let relay = RunningRelay::start(&pool, broker.clone(), options());
    let expected = write_all(&pool, &["a", "b"], 10).await;
    assert_eq!(unpublished(&pool).await, 20);
    let before = outbox::measure(&pool.clone().into()).await.unwrap().oldest_ms;
    until("the age of the oldest event rises", async || {
        outbox::measure(&pool.clone().into()).await.unwrap().oldest_ms > before + 50
    })
    .await;
    // Many more attempts than a rejected event gets.
    until("the event was tried 20 times", async || broker.attempts("a-1") > 20).await;
    assert_eq!(
        outbox::measure(&pool.clone().into()).await.unwrap().parked,
        0,
        "expected no parked event without a rejection"
    );
    up.store(true, Ordering::Relaxed);
    until_all_published(&pool).await;
    assert_eq!(outbox::measure(&pool.clone().into()).await.unwrap().oldest_ms, 0);
    assert_eq!(broker.sequences(), expected);
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r23_an_event_rejected_by_the_broker_is_parked_and_blocks_only_its_key(pool: PgPool) {
    let accepting = Arc::new(AtomicBool::new(false));
    let is_accepting = accepting.clone();
    let broker = MemoryBroker::new(move |event, _| {
        let is_accepted = event.event_id != "a-2" || is_accepting.load(Ordering::Relaxed);
        if is_accepted { Ok(()) } else { Err(rejected()) }
    });
    let expected = write_all(&pool, &["a", "b", "c"], 5).await;
    let relay = RunningRelay::start(&pool, broker.clone(), RelayOptions { rejections_max: 3, ..options() });
    until("every event that is not blocked is published", async || {
        let backlog = outbox::measure(&pool.clone().into()).await.unwrap();
        backlog.parked == 1 && backlog.unpublished == 3
    })
    .await;
    let parked = operator::parked_events(&pool.clone().into(), 10).await.unwrap();
    let event = parked.first().unwrap();
    assert_eq!(
        (event.event_id.as_str(), event.rejections, event.rejection.as_str()),
        ("a-2", 3, "too large")
    );
    assert_eq!(broker.receipts("a-2"), 3, "expected as many attempts as rejections_max");
    assert_eq!(broker.receipts("a-3"), 0, "expected the later event of the key to wait");

    accepting.store(true, Ordering::Relaxed);
    assert!(operator::retry_event(&pool.clone().into(), "a-2").await.unwrap());
    until_all_published(&pool).await;
    assert_eq!(broker.sequences(), expected);
    assert!(
        !operator::retry_event(&pool.clone().into(), "a-2").await.unwrap(),
        "expected the event to be no longer parked"
    );
    relay.stop().await;
}

/// Ends the session that holds the leader lock, as the death of the relay's process does. Returns the number of ended sessions.
async fn end_leader_session(pool: &PgPool) -> usize {
    let ended: Vec<bool> = sqlx::query_scalar(
        "SELECT pg_terminate_backend(pid) FROM pg_locks
         WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    ended.len()
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_of_two_relays_one_publishes_and_the_other_takes_over(pool: PgPool) {
    let broker = MemoryBroker::new(|_, _| Ok(()));
    let first = RunningRelay::start(&pool, broker.for_relay("first"), options());
    let mut expected = write_all(&pool, &["a"], 1).await;
    until_all_published(&pool).await;
    let second = RunningRelay::start(&pool, broker.for_relay("second"), options());
    for n in 2..=40 {
        write(&pool, "a", n).await;
    }
    until_all_published(&pool).await;
    assert_eq!(broker.relays(), ["first"], "expected the second relay to wait");

    drop(first);
    assert!(end_leader_session(&pool).await <= 1);
    for n in 41..=60 {
        write(&pool, "a", n).await;
    }
    until_all_published(&pool).await;
    assert_eq!(broker.relays(), ["first", "second"]);
    expected.insert("a".into(), (1..=60).collect());
    assert_eq!(broker.sequences(), expected);
    second.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_relay_reacquires_a_lost_leader_lock_and_keeps_the_order(pool: PgPool) {
    let broker = MemoryBroker::new(|_, _| Ok(()));
    let relay = RunningRelay::start(&pool, broker.clone(), options());
    for n in 1..=30 {
        write(&pool, "a", n).await;
        if n % 10 == 0 {
            until("a relay held the leader lock", async || end_leader_session(&pool).await == 1).await;
        }
    }
    until_all_published(&pool).await;
    assert_eq!(broker.sequences().get("a").unwrap(), &(1..=30).collect::<Vec<i64>>());
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_an_idle_relay_publishes_at_a_wake_up_notification(pool: PgPool) {
    let broker = MemoryBroker::new(|_, _| Ok(()));
    // The relay polls only once an hour.
    let relay = RunningRelay::start(
        &pool,
        broker.clone(),
        RelayOptions { poll_interval: Duration::from_secs(3600), ..options() },
    );
    for n in 1..=3 {
        write(&pool, "a", n).await;
        // The relay may not listen yet at the first notifications.
        until("the event is published", async || {
            wake_relay(&pool.clone().into()).await.unwrap();
            unpublished(&pool).await == 0
        })
        .await;
    }
    relay.stop().await;
}

/// One read and one mark serve the events of several transactions, although each of them wakes the relay.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_the_relay_gathers_events_after_a_wake_up_notification(pool: PgPool) {
    let broker = MemoryBroker::new(|_, _| Ok(()));
    let hourly = RelayOptions { poll_interval: Duration::from_secs(3600), ..RelayOptions::default() };
    let relay = RunningRelay::start(&pool, broker.clone(), hourly);
    write(&pool, "first", 1).await;
    // The relay may not listen yet at the first notifications.
    until("the first event is published", async || {
        wake_relay(&pool.clone().into()).await.unwrap();
        unpublished(&pool).await == 0
    })
    .await;
    let start = Instant::now();
    for n in 0..30 {
        write(&pool, &format!("key-{n}"), 1).await;
        wake_relay(&pool.clone().into()).await.unwrap();
    }
    until_all_published(&pool).await;
    let pauses = start.elapsed().as_millis() / 50;
    // A statement that marks rows writes a version of each.
    let marks: i64 =
        sqlx::query_scalar("SELECT count(DISTINCT xmin::text) FROM outbox WHERE subject_key <> 'first'")
            .fetch_one(&pool)
            .await
            .unwrap();
    let marks = u128::try_from(marks).unwrap();
    assert!(marks <= pauses + 1, "{marks} statements marked 30 events in {pauses} pauses");
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_published_events_can_be_republished_during_their_retention(pool: PgPool) {
    let broker = MemoryBroker::new(|_, _| Ok(()));
    let relay = RunningRelay::start(&pool, broker.clone(), options());
    let expected = write_all(&pool, &["a", "b"], 6).await;
    until_all_published(&pool).await;
    assert_eq!(retention::prune_published(&pool.clone().into(), Duration::from_secs(3600)).await.unwrap(), 0);

    // As after a loss of the broker's data.
    assert_eq!(operator::republish(&pool.clone().into(), Duration::from_secs(3600)).await.unwrap(), 12);
    until_all_published(&pool).await;
    assert_eq!((broker.receipts("a-1"), broker.receipts("b-6")), (2, 2));
    assert_eq!(broker.sequences(), expected);

    sqlx::query("UPDATE outbox SET published_at = published_at - interval '2 hours' WHERE sequence <= 4")
        .execute(&pool)
        .await
        .unwrap();
    assert_eq!(retention::prune_published(&pool.clone().into(), Duration::from_secs(3600)).await.unwrap(), 8);
    write(&pool, "a", 7).await;
    until_all_published(&pool).await;
    relay.stop().await;
}
