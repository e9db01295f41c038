//! Day partitions: created ahead and when missing, dropped once all their keys have expired, and midnight (R33).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed setup fails the test")]

mod support;

use futures::future::join_all;
use idempotency::token_claim::{self, TokenClaimOutcome};
use idempotency::{
    BatchOptions, Batcher, IdempotencyError, IdempotencyOptions, MIGRATOR, RequestOutcome, StoreBreaker,
    StoredResponse, claim, create_partitions, maintain_partitions, maintenance,
};
use postgres_kit::Pool;
use sqlx::PgPool;
use std::sync::Arc;
use std::time::Duration;
use support::{
    Notes, age, attached_days, avoid_midnight, batcher, body, count, create_table, fingerprint, key,
    partition_tables, scope, store_note,
};
use tokio_util::sync::CancellationToken;

fn executed(text: &str) -> RequestOutcome<String> {
    RequestOutcome::Executed(StoredResponse::new(201, body(text)))
}

/// The stored response to `fail`.
fn failed() -> StoredResponse {
    StoredResponse::new(410, r#"{"failed":"for good"}"#)
}

fn replayed(text: &str) -> RequestOutcome<String> {
    RequestOutcome::Replayed(StoredResponse::new(201, body(text)))
}

/// A batcher with the longest retention.
fn batcher_with_retention_of_72_h(pool: &PgPool) -> Batcher<Notes> {
    let options = IdempotencyOptions::new(72, Duration::from_secs(30)).unwrap();
    let breaker = Arc::new(StoreBreaker::default());
    Batcher::start(Notes, pool.clone(), options, BatchOptions::default(), breaker, &CancellationToken::new())
}

async fn drop_all_partitions(pool: &PgPool) {
    sqlx::raw_sql(
        "DO $$ DECLARE day regclass; BEGIN
             FOR day IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'idempotency.keys'::regclass LOOP
                 EXECUTE format('DROP TABLE %s', day);
             END LOOP;
         END $$",
    )
    .execute(pool)
    .await
    .unwrap();
}

/// The migration runs after the wait, because it creates partitions itself.
#[sqlx::test(migrations = false)]
async fn s4_5_idempotency_partitions_of_the_next_days_are_created_once(pool: PgPool) {
    avoid_midnight(&pool).await;
    MIGRATOR.run(&pool).await.unwrap();
    assert_eq!(attached_days(&pool).await, [0, 1], "expected two partitions from the migration");
    let limited = Pool::from(pool.clone());
    let created = join_all((0..8).map(|_| create_partitions(&limited))).await;
    assert_eq!(created.into_iter().map(Result::unwrap).sum::<u32>(), 2);
    assert_eq!(attached_days(&pool).await, [0, 1, 2, 3]);
    assert_eq!(maintain_partitions(&pool.clone().into()).await.unwrap().dropped, 0);
    // Partitions created later have the same indexes.
    let indexes: i64 = sqlx::query_scalar(
        "SELECT count(DISTINCT n) FROM (SELECT count(*) AS n FROM pg_indexes WHERE schemaname = 'idempotency' AND tablename LIKE 'keys_2%'
         GROUP BY tablename) AS each",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(indexes, 1, "expected the same indexes on every partition");
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r33_an_idempotency_claim_creates_a_missing_partition(pool: PgPool) {
    avoid_midnight(&pool).await;
    create_table(&pool).await;
    let batcher = batcher(&pool, BatchOptions::default());
    drop_all_partitions(&pool).await;
    let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
    let results = join_all(keys.iter().map(|key| store_note(&batcher, key, "a"))).await;
    assert!(results.into_iter().all(|result| result.unwrap() == executed("a")));
    assert_eq!(attached_days(&pool).await, [0, 1, 2, 3]);

    drop_all_partitions(&pool).await;
    let outcome = token_claim::claim(
        &pool.clone().into(),
        &scope(&key("o")),
        &fingerprint("a"),
        &IdempotencyOptions::default(),
    )
    .await
    .unwrap();
    assert!(matches!(outcome, TokenClaimOutcome::Claimed(_)));

    // In the caller's own transaction the claim only reports the missing partition.
    drop_all_partitions(&pool).await;
    let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
    let error = claim(&mut tx, &scope(&key("c")), &fingerprint("a"), &IdempotencyOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error, IdempotencyError::PartitionMissing));
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r33_an_idempotency_key_is_replayed_across_midnight(pool: PgPool) {
    create_table(&pool).await;
    let batcher = batcher_with_retention_of_72_h(&pool);
    assert_eq!(store_note(&batcher, "k", "a").await.unwrap(), executed("a"));
    // Only the key knows of a failure: no note would answer in its place.
    assert_eq!(store_note(&batcher, "failed", "fail").await.unwrap(), RequestOutcome::Executed(failed()));
    // Every retry on the following days finds the key.
    for day in 1..=2 {
        age(&pool, 24).await;
        let found = RequestOutcome::Replayed(failed());
        assert_eq!(store_note(&batcher, "failed", "fail").await.unwrap(), found, "day {day}");
        assert_eq!(store_note(&batcher, "k", "a").await.unwrap(), replayed("a"), "day {day}");
        assert_eq!(store_note(&batcher, "k", "b").await.unwrap(), RequestOutcome::Mismatch, "day {day}");
        maintain_partitions(&pool.clone().into()).await.unwrap();
    }
    age(&pool, 23).await;
    assert_eq!(store_note(&batcher, "k", "a").await.unwrap(), replayed("a"), "an hour before it expires");
    assert_eq!(count(&pool, "idempotency.keys").await, 2);
    // After its expiry the note itself decides, with the same response.
    age(&pool, 1).await;
    assert_eq!(store_note(&batcher, "k", "a").await.unwrap(), replayed("a"));
    assert_eq!(store_note(&batcher, "k", "b").await.unwrap(), RequestOutcome::Mismatch);
    assert_eq!(count(&pool, "notes").await, 1);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_5_an_idempotency_partition_is_dropped_once_its_keys_have_expired(pool: PgPool) {
    avoid_midnight(&pool).await;
    create_table(&pool).await;
    let batcher = batcher_with_retention_of_72_h(&pool);
    assert_eq!(store_note(&batcher, "k", "a").await.unwrap(), executed("a"));
    age(&pool, 71).await;
    // The empty partitions before yesterday are dropped, the one with a live key remains.
    maintain_partitions(&pool.clone().into()).await.unwrap();
    let left = attached_days(&pool).await;
    assert_eq!(count(&pool, "idempotency.keys").await, 1);
    assert!(
        left.iter().all(|day| (-3..=3).contains(day)) && left.iter().filter(|day| **day < -1).count() == 1,
        "{left:?}"
    );
    age(&pool, 2).await;
    maintain_partitions(&pool.clone().into()).await.unwrap();
    let left = attached_days(&pool).await;
    assert!(left.iter().all(|day| (-1..=3).contains(day)), "{left:?}");
    assert_eq!(count(&pool, "idempotency.keys").await, 0);
    assert_eq!(store_note(&batcher, "k", "a").await.unwrap(), replayed("a"));
}

/// The state after a process died between detaching a partition and dropping it.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_5_an_interrupted_drop_of_an_idempotency_partition_is_finished(pool: PgPool) {
    avoid_midnight(&pool).await;
    age(&pool, 0).await;
    let detach =
        "DO $$ BEGIN EXECUTE format('ALTER TABLE idempotency.keys DETACH PARTITION idempotency.%I', 'keys_'
                  || to_char((now() AT TIME ZONE 'UTC')::date - 4, 'YYYYMMDD')); END $$";
    sqlx::raw_sql(detach).execute(&pool).await.unwrap();
    assert_eq!(maintain_partitions(&pool.clone().into()).await.unwrap().dropped, 4);
    assert_eq!(
        partition_tables(&pool).await,
        5,
        "expected the partitions of yesterday, today and the next three days"
    );
}

/// Maintains the table until a run succeeds: a run that waits too long for a lock fails, and the next one finishes. Returns the
/// number of dropped partitions; `None` if the first run failed, since it does not report its progress.
async fn maintain_until_done(pool: &PgPool) -> Option<u32> {
    for run in 0..40 {
        match maintenance::maintain(&pool.clone().into()).await {
            Ok(report) => return (run == 0).then_some(report.partitions.dropped),
            Err(IdempotencyError::Database(sqlx::Error::Database(error)))
                if error.code().as_deref() == Some("55P03") => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("expected the lock within forty runs")
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r33_dropping_partitions_does_not_disturb_concurrent_idempotent_replays(pool: PgPool) {
    avoid_midnight(&pool).await;
    create_table(&pool).await;
    let batcher = batcher_with_retention_of_72_h(&pool);
    let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    // Only the key knows of a failure: no note would answer in its place.
    for key in &keys {
        assert_eq!(store_note(&batcher, key, "fail").await.unwrap(), RequestOutcome::Executed(failed()));
    }
    // Requests are replayed without a pause while old partitions are created and dropped.
    let stop = CancellationToken::new();
    let replaying = tokio::spawn({
        let (stop, keys) = (stop.clone(), keys.clone());
        async move {
            let mut rounds = 0;
            while !stop.is_cancelled() {
                for result in join_all(keys.iter().map(|key| store_note(&batcher, key, "fail"))).await {
                    assert_eq!(result.unwrap(), RequestOutcome::Replayed(failed()));
                }
                rounds += 1;
            }
            rounds
        }
    });
    for _ in 0..5 {
        age(&pool, 0).await;
        let dropped: Option<u32> =
            join_all((0..3).map(|_| maintain_until_done(&pool))).await.into_iter().sum();
        assert!(dropped.is_none_or(|dropped| dropped == 4), "{dropped:?}");
        assert_eq!(attached_days(&pool).await, [-1, 0, 1, 2, 3]);
        assert_eq!(partition_tables(&pool).await, 5);
    }
    stop.cancel();
    assert!(replaying.await.unwrap() > 0);
    assert_eq!(count(&pool, "idempotency.keys").await, 20);
}
