//! The relay while its broker confirms nothing or hangs, and the cost of its reads of the backlog (R32).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::{Event, MIGRATOR, PublishError, Publisher, RelayOptions, wake_relay};
use sqlx::PgPool;
use support::{
    MemoryBroker, RunningRelay, SequencesByKey, event_lost, options, unpublished, until, until_all_published,
    write,
};

/// Only wake-up notifications and the back-off start a round.
fn without_polling() -> RelayOptions {
    RelayOptions { poll_interval: Duration::from_secs(3600), ..RelayOptions::default() }
}

/// A broker in memory that confirms nothing until the switch is set.
fn broker_down() -> (MemoryBroker, Arc<AtomicBool>) {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = up.clone();
    let broker =
        MemoryBroker::new(move |_, _| if is_up.load(Ordering::Relaxed) { Ok(()) } else { Err(event_lost()) });
    (broker, up)
}

/// Stores events of `keys` keys, two of each, as a writer does; returns the expected sequence numbers.
async fn store(pool: &PgPool, keys: i64) -> SequencesByKey {
    for statement in [
        "INSERT INTO outbox_keys SELECT 'key-' || k, 2 FROM generate_series(1, $1) AS k",
        "INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body)
         SELECT 'key-' || k || '-' || n, 'happened', 1, 'key-' || k, n, '{}'
         FROM generate_series(1, $1) AS k, generate_series(1, 2) AS n",
    ] {
        sqlx::query(statement).bind(keys).execute(pool).await.unwrap();
    }
    (1..=keys).map(|key| (format!("key-{key}"), vec![1, 2])).collect()
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_wake_ups_do_not_read_the_backlog_while_the_broker_is_down(pool: PgPool) {
    let expected = store(&pool, 300).await;
    let (broker, up) = broker_down();
    let relay = RunningRelay::start(&pool, broker.clone(), without_polling());
    until("the first round failed", async || broker.all_attempts() > 0).await;
    for _ in 0..1_000 {
        wake_relay(&pool.clone().into()).await.unwrap();
    }
    // One full batch of 256 events of 128 keys, then at most one probe of 8 events for each pause that fits into the
    // time of a test: 100 ms, 200 ms .. 5 s.
    let attempts = broker.all_attempts();
    assert!(attempts <= 128 + 20 * 8, "{attempts} events were read and tried in vain");
    // No wake-up and no poll follows: the relay itself continues after its pause, down to the last event.
    up.store(true, Ordering::Relaxed);
    until_all_published(&pool).await;
    assert_eq!(broker.sequences(), expected);
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_events_never_confirmed_hold_back_only_their_own_keys(pool: PgPool) {
    let broker = MemoryBroker::new(|event, _| if event.key == "good" { Ok(()) } else { Err(event_lost()) });
    // More keys than a probe has events.
    store(&pool, 40).await;
    let relay = RunningRelay::start(&pool, broker.clone(), RelayOptions { batch: 256, ..options() });
    until("the relay backs off", async || broker.attempts("key-1-1") > 1).await;
    for n in 1..=3 {
        write(&pool, "good", n).await;
        until("the event of another key is published", async || unpublished(&pool).await == 80).await;
    }
    assert_eq!(broker.sequences().get("good").unwrap(), &vec![1, 2, 3]);
    relay.stop().await;
}

/// A broker that accepts events and does not answer while it hangs, or does not answer those of one key.
struct HangingBroker {
    broker: MemoryBroker,
    hangs: Arc<AtomicBool>,
    key: Option<&'static str>,
}

impl Publisher for HangingBroker {
    async fn publish(&self, event: &Event) -> Result<(), PublishError> {
        let answer = self.broker.publish(event).await;
        let is_of_key = self.key.is_none_or(|key| event.key == key);
        if is_of_key && self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        answer
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_hanging_broker_holds_no_transaction_and_few_events(pool: PgPool) {
    let expected = store(&pool, 300).await;
    let (broker, hangs) = (MemoryBroker::new(|_, _| Ok(())), Arc::new(AtomicBool::new(true)));
    let hanging = HangingBroker { broker: broker.clone(), hangs: hangs.clone(), key: None };
    let relay = RunningRelay::start(&pool, hanging, without_polling());
    until("a round waits for the broker", async || broker.all_attempts() >= 32).await;
    let in_transaction: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(in_transaction, 0, "expected no transaction while the broker hangs");
    until("the relay probes the broker", async || broker.attempts("key-1-1") == 2).await;
    // The round sent no more events than it may have in flight, and the probe at most 8.
    let attempts = broker.all_attempts();
    assert!(attempts <= 32 + 8, "{attempts} events were sent to a broker that hangs");
    hangs.store(false, Ordering::Relaxed);
    until_all_published(&pool).await;
    assert_eq!(broker.sequences(), expected);
    relay.stop().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_5_an_event_waits_for_no_slower_confirmation_of_another_key(pool: PgPool) {
    let (broker, hangs) = (MemoryBroker::new(|_, _| Ok(())), Arc::new(AtomicBool::new(true)));
    let hanging = HangingBroker { broker: broker.clone(), hangs: hangs.clone(), key: Some("slow") };
    let relay = RunningRelay::start(&pool, hanging, without_polling());
    write(&pool, "slow", 1).await;
    until("the slow event is in flight", async || {
        wake_relay(&pool.clone().into()).await.unwrap();
        broker.attempts("slow-1") == 1
    })
    .await;
    write(&pool, "slow", 2).await;
    for n in 1..=3 {
        write(&pool, "good", n).await;
        wake_relay(&pool.clone().into()).await.unwrap();
        until("only the slow key is unpublished", async || unpublished(&pool).await == 2).await;
    }
    // The first attempt is still in flight: nobody waited for its timeout, and no later event of its key passed it.
    assert_eq!((broker.attempts("slow-1"), broker.attempts("slow-2")), (1, 0));
    hangs.store(false, Ordering::Relaxed);
    until_all_published(&pool).await;
    let expected = [("good".to_owned(), vec![1, 2, 3]), ("slow".to_owned(), vec![1, 2])];
    assert_eq!(broker.sequences(), expected.into_iter().collect());
    relay.stop().await;
}

/// Rows of the table `outbox` that all ended statements read.
async fn rows_read(pool: &PgPool) -> i64 {
    sqlx::query_scalar(
        "SELECT (seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_user_tables WHERE relname = 'outbox'",
    )
    .fetch_one(pool)
    .await
    .unwrap()
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r32_a_read_of_the_backlog_is_bounded_by_the_batch(pool: PgPool) {
    // The statistics are from a time without a backlog, as they are when a broker goes down.
    store(&pool, 2_500).await;
    for statement in [
        "ALTER TABLE outbox SET (autovacuum_enabled = false)",
        "UPDATE outbox SET published_at = now()",
        "ANALYZE outbox",
        "UPDATE outbox SET published_at = NULL",
    ] {
        sqlx::query(statement).execute(&pool).await.unwrap();
    }
    let pool = reconnected(pool).await;
    let before = rows_read(&pool).await;
    let (broker, _) = broker_down();
    let relay = RunningRelay::start(&pool, broker.clone(), without_polling());
    until("the first round failed", async || broker.all_attempts() >= 128).await;
    relay.stop().await;
    // A session counts its reads when it ends.
    until("the relay's session ended", async || rows_read(&pool).await > before).await;
    let rows = rows_read(&pool).await - before;
    assert!((256..=1_000).contains(&rows), "a round of 256 events read {rows} of 5,000 rows");
}

/// A pool of new sessions, after the earlier ones have ended and counted their reads.
async fn reconnected(pool: PgPool) -> PgPool {
    let options = pool.connect_options().as_ref().clone();
    pool.close().await;
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    until("no other session is left", async || {
        let others: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
        )
        .fetch_one(&pool)
        .await
        .unwrap();
        others == 0
    })
    .await;
    pool
}
