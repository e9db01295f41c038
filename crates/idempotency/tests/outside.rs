//! Effects outside the transaction: the lease is a row, taken over exactly once, and its old holder completes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use idempotency::outside::{self, Begun, Holder};
use idempotency::{Answer, IdempotencyError, MIGRATOR, Terms};
use sqlx::PgPool;
use support::{PATIENCE, count, fingerprint, key, scope};

async fn begin(pool: &PgPool, key_text: &str, text: &str) -> Begun {
    outside::begin(pool, &scope(&key(key_text)), &fingerprint(text), &Terms::default()).await.unwrap()
}

fn held(begun: Begun) -> Holder {
    match begun {
        Begun::Held(holder) => holder,
        other => panic!("{other:?}"),
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_1_an_effect_outside_has_the_same_contract(pool: PgPool) {
    let first = held(begin(&pool, "k", "a").await);
    assert!(matches!(begin(&pool, "k", "a").await, Begun::InProgress));
    assert!(matches!(begin(&pool, "k", "b").await, Begun::Mismatch));
    first.complete(&Answer::new(202, "done")).await.unwrap();
    match begin(&pool, "k", "a").await {
        Begun::Replay(answer) => assert_eq!(answer, Answer::new(202, "done")),
        other => panic!("{other:?}"),
    }
    assert!(matches!(begin(&pool, "k", "b").await, Begun::Mismatch));

    held(begin(&pool, "back", "a").await).give_back().await.unwrap();
    let again = held(begin(&pool, "back", "b").await);
    let refused = again.complete(&Answer::new(503, "")).await.unwrap_err();
    assert!(matches!(refused, IdempotencyError::NotStorable { status: 503 }));
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_4_r26_exactly_one_repeat_takes_over_and_the_old_holder_completes_nothing(pool: PgPool) {
    let paused = held(begin(&pool, "k", "a").await);
    // A lease that is short from the start would also bound how long the claim itself may take.
    sqlx::query("UPDATE idempotency_keys SET lease_until = clock_timestamp() + interval '50 ms'")
        .execute(&pool)
        .await
        .unwrap();
    let taken_over = async {
        loop {
            let begun = join_all((0..16).map(|_| begin(&pool, "k", "a"))).await;
            let mut holders: Vec<Holder> = begun
                .into_iter()
                .filter_map(|begun| if let Begun::Held(holder) = begun { Some(holder) } else { None })
                .collect();
            assert!(holders.len() <= 1, "taken over {} times", holders.len());
            if let Some(holder) = holders.pop() {
                return holder;
            }
        }
    };
    let second = tokio::time::timeout(PATIENCE, taken_over).await.expect("nobody took it over");
    assert_ne!(paused.token(), second.token());
    let late = paused.complete(&Answer::new(201, "of the paused")).await.unwrap_err();
    assert!(matches!(late, IdempotencyError::Overtaken));
    second.complete(&Answer::new(201, "of the second")).await.unwrap();
    match begin(&pool, "k", "a").await {
        Begun::Replay(answer) => assert_eq!(answer.body, b"of the second"),
        other => panic!("{other:?}"),
    }
    assert_eq!(count(&pool, "idempotency_keys").await, 1);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_4_a_late_holder_that_nobody_took_over_still_completes(pool: PgPool) {
    let late = held(begin(&pool, "k", "a").await);
    sqlx::query("UPDATE idempotency_keys SET lease_until = now() - interval '1 hour'")
        .execute(&pool)
        .await
        .unwrap();
    late.complete(&Answer::new(201, "late")).await.unwrap();
    assert!(matches!(begin(&pool, "k", "a").await, Begun::Replay(_)));
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_4_who_is_stuck_for_over_a_minute_is_reaped(pool: PgPool) {
    // Some at a time: all at once would wait for a connection for as long as all of them take.
    let holders: Vec<Holder> = stream::iter(0..1_500)
        .map(async |n| held(begin(&pool, &format!("stuck-{n}"), "a").await))
        .buffer_unordered(16)
        .collect()
        .await;
    let _fresh = held(begin(&pool, "fresh", "a").await);
    held(begin(&pool, "done", "a").await).complete(&Answer::new(200, "done")).await.unwrap();
    let late = "UPDATE idempotency_keys SET lease_until = now() - interval '50 s' WHERE key LIKE 'stuck-%'";
    sqlx::query(late).execute(&pool).await.unwrap();
    assert_eq!(outside::reap(&pool).await.unwrap(), 0, "a minute is not over");
    let stuck = "UPDATE idempotency_keys SET lease_until = now() - interval '61 s' WHERE key LIKE 'stuck-%'";
    sqlx::query(stuck).execute(&pool).await.unwrap();
    let reaped = join_all((0..4).map(|_| outside::reap(&pool))).await;
    assert_eq!(reaped.into_iter().map(Result::unwrap).sum::<u64>(), 1_500, "each once, whoever reaps beside");
    assert_eq!(count(&pool, "idempotency_keys").await, 2);
    for holder in holders.into_iter().take(3) {
        assert!(matches!(holder.give_back().await, Err(IdempotencyError::Overtaken)));
    }
}
