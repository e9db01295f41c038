//! Days: made ahead and when missing, dropped when nothing in them is live, and crossed at midnight (R33).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use futures::future::join_all;
use idempotency::outside::{self, Begun};
use idempotency::{
    Answer, Batcher, Breaker, IdempotencyError, MIGRATOR, Outcome, Terms, Width, claim, keep_days, keeper,
    make_days,
};
use sqlx::PgPool;
use std::sync::Arc;
use std::time::Duration;
use support::{
    Notes, age, batcher, body, clear_of_midnight, count, days, fingerprint, keep, key, make_table, scope,
    tables,
};
use tokio_util::sync::CancellationToken;

fn answered(text: &str) -> Outcome<String> {
    Outcome::Answered(Answer::new(201, body(text)))
}

fn replayed(text: &str) -> Outcome<String> {
    Outcome::Replayed(Answer::new(201, body(text)))
}

/// A batcher that keeps keys for as long as is allowed.
fn for_three_days(pool: &PgPool) -> Batcher<Notes> {
    let terms = Terms::new(72, Duration::from_secs(30)).unwrap();
    let breaker = Arc::new(Breaker::default());
    Batcher::start(Notes, pool.clone(), terms, Width::default(), breaker, &CancellationToken::new())
}

async fn forget_all_days(pool: &PgPool) {
    sqlx::raw_sql(
        "DO $$ DECLARE day regclass; BEGIN
             FOR day IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'idempotency_keys'::regclass LOOP
                 EXECUTE format('DROP TABLE %s', day);
             END LOOP;
         END $$",
    )
    .execute(pool)
    .await
    .unwrap();
}

/// The migration comes when midnight is not near: it makes days itself.
#[sqlx::test(migrations = false)]
async fn s4_5_days_are_made_ahead_once(pool: PgPool) {
    clear_of_midnight(&pool).await;
    MIGRATOR.run(&pool).await.unwrap();
    assert_eq!(days(&pool).await, [0, 1], "the migration makes two");
    let made = join_all((0..8).map(|_| make_days(&pool))).await;
    assert_eq!(made.into_iter().map(Result::unwrap).sum::<u32>(), 2);
    assert_eq!(days(&pool).await, [0, 1, 2, 3]);
    assert_eq!(keep_days(&pool).await.unwrap().dropped, 0);
    // What a partition must have, a day made later has too.
    let indexes: i64 = sqlx::query_scalar(
        "SELECT count(DISTINCT n) FROM (SELECT count(*) AS n FROM pg_indexes WHERE tablename LIKE 'idempotency_keys_2%'
         GROUP BY tablename) AS each",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(indexes, 1, "days differ in their indexes");
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r33_whoever_finds_a_day_missing_makes_it(pool: PgPool) {
    clear_of_midnight(&pool).await;
    make_table(&pool).await;
    let batcher = batcher(&pool, Width::default());
    forget_all_days(&pool).await;
    let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
    let said = join_all(keys.iter().map(|key| keep(&batcher, key, "a"))).await;
    assert!(said.into_iter().all(|said| said.unwrap() == answered("a")));
    assert_eq!(days(&pool).await, [0, 1, 2, 3]);

    forget_all_days(&pool).await;
    let begun = outside::begin(&pool, &scope(&key("o")), &fingerprint("a"), &Terms::default()).await.unwrap();
    assert!(matches!(begun, Begun::Held(_)));

    // In a transaction of the caller's own nothing has happened yet when it is told.
    forget_all_days(&pool).await;
    let mut tx = pool.begin().await.unwrap();
    let missing = claim(&mut tx, &scope(&key("c")), &fingerprint("a"), &Terms::default()).await.unwrap_err();
    assert!(matches!(missing, IdempotencyError::DayMissing));
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r33_a_key_is_kept_across_midnight(pool: PgPool) {
    make_table(&pool).await;
    let batcher = for_three_days(&pool);
    assert_eq!(keep(&batcher, "k", "a").await.unwrap(), answered("a"));
    // One day after another goes by, and every repeat finds it.
    for day in 1..=2 {
        age(&pool, 24).await;
        assert_eq!(keep(&batcher, "k", "a").await.unwrap(), replayed("a"), "day {day}");
        assert_eq!(keep(&batcher, "k", "b").await.unwrap(), Outcome::Mismatch, "day {day}");
        keep_days(&pool).await.unwrap();
    }
    age(&pool, 23).await;
    assert_eq!(keep(&batcher, "k", "a").await.unwrap(), replayed("a"), "an hour before it expires");
    assert_eq!(count(&pool, "idempotency_keys").await, 1);
    // After that the note itself has the last word, with the same answer.
    age(&pool, 1).await;
    assert_eq!(keep(&batcher, "k", "a").await.unwrap(), replayed("a"));
    assert_eq!(keep(&batcher, "k", "b").await.unwrap(), Outcome::Mismatch);
    assert_eq!(count(&pool, "notes").await, 1);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_5_a_day_is_dropped_when_nothing_in_it_is_live(pool: PgPool) {
    clear_of_midnight(&pool).await;
    make_table(&pool).await;
    let batcher = for_three_days(&pool);
    assert_eq!(keep(&batcher, "k", "a").await.unwrap(), answered("a"));
    age(&pool, 71).await;
    // The empty days before yesterday go, the one with a live key stays.
    keep_days(&pool).await.unwrap();
    let left = days(&pool).await;
    assert_eq!(count(&pool, "idempotency_keys").await, 1);
    assert!(
        left.iter().all(|day| (-3..=3).contains(day)) && left.iter().filter(|day| **day < -1).count() == 1,
        "{left:?}"
    );
    age(&pool, 2).await;
    keep_days(&pool).await.unwrap();
    let left = days(&pool).await;
    assert!(left.iter().all(|day| (-1..=3).contains(day)), "{left:?}");
    assert_eq!(count(&pool, "idempotency_keys").await, 0);
    assert_eq!(keep(&batcher, "k", "a").await.unwrap(), replayed("a"));
}

/// What a process left behind when it died between detaching a day and dropping it.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_5_a_drop_that_was_cut_off_is_finished(pool: PgPool) {
    clear_of_midnight(&pool).await;
    age(&pool, 0).await;
    let detach =
        "DO $$ BEGIN EXECUTE format('ALTER TABLE idempotency_keys DETACH PARTITION %I', 'idempotency_keys_'
                  || to_char((now() AT TIME ZONE 'UTC')::date - 4, 'YYYYMMDD')); END $$";
    sqlx::raw_sql(detach).execute(&pool).await.unwrap();
    assert_eq!(keep_days(&pool).await.unwrap().dropped, 4);
    assert_eq!(tables(&pool).await, 5, "yesterday, today and three days ahead");
}

/// Keeps the table as a process does, turn after turn: who waits too long for a lock gives up, and its next
/// turn finishes. How many days it dropped, unless it gave up: it does not say how far it had come.
async fn keep_on(pool: &PgPool) -> Option<u32> {
    for turn in 0..40 {
        match keeper::keep(pool).await {
            Ok(kept) => return (turn == 0).then_some(kept.days.dropped),
            Err(IdempotencyError::Database(sqlx::Error::Database(error)))
                if error.code().as_deref() == Some("55P03") => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("no lock in forty turns")
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r33_days_are_dropped_while_keys_are_replayed(pool: PgPool) {
    clear_of_midnight(&pool).await;
    make_table(&pool).await;
    let batcher = for_three_days(&pool);
    let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    for key in &keys {
        assert_eq!(keep(&batcher, key, "a").await.unwrap(), answered("a"));
    }
    // Replays without a pause, while old days come and go.
    let stop = CancellationToken::new();
    let replaying = tokio::spawn({
        let (stop, keys) = (stop.clone(), keys.clone());
        async move {
            let mut rounds = 0;
            while !stop.is_cancelled() {
                for said in join_all(keys.iter().map(|key| keep(&batcher, key, "a"))).await {
                    assert_eq!(said.unwrap(), replayed("a"));
                }
                rounds += 1;
            }
            rounds
        }
    });
    for _ in 0..5 {
        age(&pool, 0).await;
        let dropped: Option<u32> = join_all((0..3).map(|_| keep_on(&pool))).await.into_iter().sum();
        assert!(dropped.is_none_or(|dropped| dropped == 4), "{dropped:?}");
        assert_eq!(days(&pool).await, [-1, 0, 1, 2, 3]);
        assert_eq!(tables(&pool).await, 5);
    }
    stop.cancel();
    assert!(replaying.await.unwrap() > 0);
    assert_eq!(count(&pool, "notes").await, 20);
}
