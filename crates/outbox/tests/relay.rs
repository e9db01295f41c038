//! What the relay holds, whatever the broker does and whoever else relays (S3.5, R23, R32).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::{MIGRATOR, Nudge, PublishError, RelayOptions, keep};
use sqlx::PgPool;
use support::{Memory, Running, lost, options, unanswered, unpublished, until, until_all_published, write};
use tokio_util::sync::CancellationToken;

fn refused() -> PublishError {
    PublishError::Refused { reason: "too large".into() }
}

/// Writes `count` events of each key, all keys in turn.
async fn write_all(pool: &PgPool, keys: &[&str], count: i64) -> BTreeMap<String, Vec<i64>> {
    for n in 1..=count {
        for key in keys {
            write(pool, key, n).await;
        }
    }
    keys.iter().map(|key| ((*key).to_owned(), (1..=count).collect())).collect()
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_events_are_published_in_the_order_of_their_key(pool: PgPool) {
    let broker = Memory::new(|_, _| Ok(()));
    let relay = Running::start(&pool, broker.clone(), options());
    let wanted = write_all(&pool, &["a", "b", "c", "d"], 20).await;
    until_all_published(&pool).await;
    assert_eq!(broker.orders(), wanted);
    assert_eq!(broker.times("a-1"), 1, "what is confirmed is not published again");
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_what_is_not_known_to_be_published_is_published_again_in_order(pool: PgPool) {
    // Every third event is lost once, then its answer is.
    let broker = Memory::new(|event, tries| match (event.sequence % 3, tries) {
        (0, 1) => Err(lost()),
        (0, 2) => Err(unanswered()),
        _ => Ok(()),
    });
    let wanted = write_all(&pool, &["a", "b", "c"], 12).await;
    let relay = Running::start(&pool, broker.clone(), options());
    until_all_published(&pool).await;
    assert_eq!(broker.orders(), wanted);
    assert_eq!((broker.times("b-3"), broker.times("b-4")), (2, 1));
    assert_eq!(outbox::measure(&pool).await.unwrap().parked, 0, "unknown is never refused");
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_while_the_broker_is_down_the_lag_rises_and_falls_afterwards(pool: PgPool) {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = up.clone();
    let broker = Memory::new(move |_, _| if is_up.load(Ordering::Relaxed) { Ok(()) } else { Err(lost()) });
    let relay = Running::start(&pool, broker.clone(), options());
    let wanted = write_all(&pool, &["a", "b"], 10).await;
    assert_eq!(unpublished(&pool).await, 20);
    let before = outbox::measure(&pool).await.unwrap().oldest_ms;
    until("the lag rises", async || outbox::measure(&pool).await.unwrap().oldest_ms > before + 50).await;
    // Far more often than a refused event would be tried.
    until("it is tried for ever", async || broker.tries("a-1") > 20).await;
    assert_eq!(outbox::measure(&pool).await.unwrap().parked, 0, "unknown is never refused");
    up.store(true, Ordering::Relaxed);
    until_all_published(&pool).await;
    assert_eq!(outbox::measure(&pool).await.unwrap().oldest_ms, 0);
    assert_eq!(broker.orders(), wanted);
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r23_a_refused_event_is_parked_and_keeps_back_its_own_key_only(pool: PgPool) {
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = mended.clone();
    let broker = Memory::new(move |event, _| {
        let passes = event.event_id != "a-2" || is_mended.load(Ordering::Relaxed);
        if passes { Ok(()) } else { Err(refused()) }
    });
    let wanted = write_all(&pool, &["a", "b", "c"], 5).await;
    let relay = Running::start(&pool, broker.clone(), RelayOptions { refusals_max: 3, ..options() });
    until("all is published that can be", async || {
        let now = outbox::measure(&pool).await.unwrap();
        now.parked == 1 && now.unpublished == 3
    })
    .await;
    let parked = keep::parked(&pool, 10).await.unwrap();
    let one = parked.first().unwrap();
    assert_eq!((one.event_id.as_str(), one.rejections, one.rejection.as_str()), ("a-2", 3, "too large"));
    assert_eq!(broker.times("a-2"), 3, "tried as often as is allowed");
    assert_eq!(broker.times("a-3"), 0, "nothing overtakes it in its own key");

    mended.store(true, Ordering::Relaxed);
    assert!(keep::retry(&pool, "a-2").await.unwrap());
    until_all_published(&pool).await;
    assert_eq!(broker.orders(), wanted);
    assert!(!keep::retry(&pool, "a-2").await.unwrap(), "it is not parked any more");
    relay.stop().await;
}

/// Ends the session that holds the relay's seat, as the death of its process does.
async fn unseat(pool: &PgPool) -> usize {
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
async fn r32_of_two_relays_one_is_at_work_and_the_other_takes_over(pool: PgPool) {
    let broker = Memory::new(|_, _| Ok(()));
    let first = Running::start(&pool, broker.by("first"), options());
    let mut wanted = write_all(&pool, &["a"], 1).await;
    until_all_published(&pool).await;
    let second = Running::start(&pool, broker.by("second"), options());
    for n in 2..=40 {
        write(&pool, "a", n).await;
    }
    until_all_published(&pool).await;
    assert_eq!(broker.relays(), ["first"], "the second one waits");

    drop(first);
    assert!(unseat(&pool).await <= 1);
    for n in 41..=60 {
        write(&pool, "a", n).await;
    }
    until_all_published(&pool).await;
    assert_eq!(broker.relays(), ["first", "second"]);
    wanted.insert("a".into(), (1..=60).collect());
    assert_eq!(broker.orders(), wanted);
    second.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_relay_that_lost_its_seat_marks_nothing_and_sits_down_again(pool: PgPool) {
    let broker = Memory::new(|_, _| Ok(()));
    let relay = Running::start(&pool, broker.clone(), options());
    for n in 1..=30 {
        write(&pool, "a", n).await;
        if n % 10 == 0 {
            until("somebody sat there", async || unseat(&pool).await == 1).await;
        }
    }
    until_all_published(&pool).await;
    assert_eq!(broker.orders().get("a").unwrap(), &(1..=30).collect::<Vec<i64>>());
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_an_idle_relay_hears_of_a_new_event_at_once(pool: PgPool) {
    let broker = Memory::new(|_, _| Ok(()));
    // It would look by itself in an hour.
    let relay = Running::start(
        &pool,
        broker.clone(),
        RelayOptions { poll_interval: Duration::from_secs(3600), ..options() },
    );
    let stop = CancellationToken::new();
    let nudge = Nudge::start(pool.clone(), stop.clone());
    for n in 1..=3 {
        write(&pool, "a", n).await;
        // The first ones may come before it listens.
        until("it was published", async || {
            nudge.ask();
            unpublished(&pool).await == 0
        })
        .await;
    }
    stop.cancel();
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_published_events_are_kept_for_a_while_and_can_be_published_again(pool: PgPool) {
    let broker = Memory::new(|_, _| Ok(()));
    let relay = Running::start(&pool, broker.clone(), options());
    let wanted = write_all(&pool, &["a", "b"], 6).await;
    until_all_published(&pool).await;
    assert_eq!(keep::prune_published(&pool, Duration::from_secs(3600)).await.unwrap(), 0);

    // As after a broker's power failure.
    assert_eq!(keep::republish(&pool, Duration::from_secs(3600)).await.unwrap(), 12);
    until_all_published(&pool).await;
    assert_eq!((broker.times("a-1"), broker.times("b-6")), (2, 2));
    assert_eq!(broker.orders(), wanted);

    sqlx::query("UPDATE outbox SET published_at = published_at - interval '2 hours' WHERE sequence <= 4")
        .execute(&pool)
        .await
        .unwrap();
    assert_eq!(keep::prune_published(&pool, Duration::from_secs(3600)).await.unwrap(), 8);
    write(&pool, "a", 7).await;
    until_all_published(&pool).await;
    relay.stop().await;
}
