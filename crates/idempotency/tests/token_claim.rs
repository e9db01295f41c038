//! Claims with a token: the lease is a row, taken over exactly once, and its old holder completes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed setup fails the test")]

mod support;

use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use idempotency::token_claim::{self, Holder, TokenClaimOutcome};
use idempotency::{ClaimOutcome, IdempotencyError, IdempotencyOptions, MIGRATOR, StoredResponse};
use postgres_kit::Pool;
use sqlx::PgPool;
use support::{TIMEOUT, count, fingerprint, key, scope};

async fn claim(pool: &PgPool, key_text: &str, text: &str) -> TokenClaimOutcome {
    token_claim::claim(
        &pool.clone().into(),
        &scope(&key(key_text)),
        &fingerprint(text),
        &IdempotencyOptions::default(),
    )
    .await
    .unwrap()
}

fn claimed(outcome: TokenClaimOutcome) -> Holder {
    match outcome {
        TokenClaimOutcome::Claimed(holder) => holder,
        other => panic!("unexpected outcome {other:?}"),
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_1_a_token_claim_has_the_contract_of_a_transactional_claim(pool: PgPool) {
    let first = claimed(claim(&pool, "k", "a").await);
    assert!(matches!(claim(&pool, "k", "a").await, TokenClaimOutcome::InProgress));
    assert!(matches!(claim(&pool, "k", "b").await, TokenClaimOutcome::Mismatch));
    first.complete(&StoredResponse::new(202, "done")).await.unwrap();
    match claim(&pool, "k", "a").await {
        TokenClaimOutcome::Replay(response) => assert_eq!(response, StoredResponse::new(202, "done")),
        other => panic!("unexpected outcome {other:?}"),
    }
    assert!(matches!(claim(&pool, "k", "b").await, TokenClaimOutcome::Mismatch));

    claimed(claim(&pool, "released", "a").await).release().await.unwrap();
    let again = claimed(claim(&pool, "released", "b").await);
    let error = again.complete(&StoredResponse::new(503, "")).await.unwrap_err();
    assert!(matches!(error, IdempotencyError::NotStorable { status: 503 }));
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_4_r26_one_retry_takes_over_an_expired_claim_and_fences_its_holder(pool: PgPool) {
    let stalled = claimed(claim(&pool, "k", "a").await);
    // Shortened afterwards: a short lease would also limit the time of the claim itself.
    sqlx::query("UPDATE idempotency.keys SET lease_until = clock_timestamp() + interval '50 ms'")
        .execute(&pool)
        .await
        .unwrap();
    let taken_over = async {
        loop {
            let outcomes = join_all((0..16).map(|_| claim(&pool, "k", "a"))).await;
            let mut holders: Vec<Holder> = outcomes
                .into_iter()
                .filter_map(|outcome| {
                    if let TokenClaimOutcome::Claimed(holder) = outcome { Some(holder) } else { None }
                })
                .collect();
            assert!(holders.len() <= 1, "taken over {} times", holders.len());
            if let Some(holder) = holders.pop() {
                return holder;
            }
        }
    };
    let second = tokio::time::timeout(TIMEOUT, taken_over).await.expect("no retry took the key over");
    assert_ne!(stalled.token(), second.token());
    let late = stalled.complete(&StoredResponse::new(201, "of the stalled holder")).await.unwrap_err();
    assert!(matches!(late, IdempotencyError::ClaimLost));
    second.complete(&StoredResponse::new(201, "of the second holder")).await.unwrap();
    match claim(&pool, "k", "a").await {
        TokenClaimOutcome::Replay(response) => assert_eq!(response.body, b"of the second holder"),
        other => panic!("unexpected outcome {other:?}"),
    }
    assert_eq!(count(&pool, "idempotency.keys").await, 1);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_4_a_late_idempotency_key_holder_completes_unless_it_was_replaced(pool: PgPool) {
    let late = claimed(claim(&pool, "k", "a").await);
    sqlx::query("UPDATE idempotency.keys SET lease_until = now() - interval '1 hour'")
        .execute(&pool)
        .await
        .unwrap();
    late.complete(&StoredResponse::new(201, "late")).await.unwrap();
    assert!(matches!(claim(&pool, "k", "a").await, TokenClaimOutcome::Replay(_)));
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_4_idempotency_claims_expired_for_over_a_minute_are_reaped(pool: PgPool) {
    // Sixteen at a time, because all at once would exceed the wait for a connection.
    let holders: Vec<Holder> = stream::iter(0..1_500)
        .map(async |n| claimed(claim(&pool, &format!("stuck-{n}"), "a").await))
        .buffer_unordered(16)
        .collect()
        .await;
    let _fresh = claimed(claim(&pool, "fresh", "a").await);
    claimed(claim(&pool, "done", "a").await).complete(&StoredResponse::new(200, "done")).await.unwrap();
    let late = "UPDATE idempotency.keys SET lease_until = now() - interval '50 s' WHERE key LIKE 'stuck-%'";
    sqlx::query(late).execute(&pool).await.unwrap();
    assert_eq!(
        token_claim::reap(&pool.clone().into()).await.unwrap(),
        0,
        "expected no holder to be reaped within the first minute"
    );
    let stuck = "UPDATE idempotency.keys SET lease_until = now() - interval '61 s' WHERE key LIKE 'stuck-%'";
    sqlx::query(stuck).execute(&pool).await.unwrap();
    let limited = Pool::from(pool.clone());
    let reaped = join_all((0..4).map(|_| token_claim::reap(&limited))).await;
    assert_eq!(
        reaped.into_iter().map(Result::unwrap).sum::<u64>(),
        1_500,
        "expected each holder to be reaped once by concurrent reapers"
    );
    assert_eq!(count(&pool, "idempotency.keys").await, 2);
    for holder in holders.into_iter().take(3) {
        assert!(matches!(holder.release().await, Err(IdempotencyError::ClaimLost)));
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_4_an_expired_claim_that_a_transaction_takes_over_is_in_progress_for_others(pool: PgPool) {
    let _stalled = claimed(claim(&pool, "k", "a").await);
    sqlx::query("UPDATE idempotency.keys SET lease_until = clock_timestamp() - interval '1 ms'")
        .execute(&pool)
        .await
        .unwrap();
    let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
    let (key, options) = (key("k"), IdempotencyOptions::default());
    let taken_over = idempotency::claim(&mut tx, &scope(&key), &fingerprint("a"), &options).await.unwrap();
    assert!(matches!(taken_over, ClaimOutcome::Claimed(_)), "{taken_over:?}");
    // The transaction holds the key's lock, and its own claim is not committed.
    let other = tokio::time::timeout(TIMEOUT, claim(&pool, "k", "a")).await.expect("no answer");
    assert!(matches!(other, TokenClaimOutcome::InProgress), "{other:?}");
    tx.rollback().await.unwrap();
    let _taken = claimed(claim(&pool, "k", "a").await);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_4_every_abandoned_claim_is_removed_in_one_call(pool: PgPool) {
    let insert = "INSERT INTO idempotency.keys
             (scope_id, tenant, client, key, request_hash, claim_token, lease_until, expires_at, schema_version)
         SELECT gen_random_uuid(), 't', 'c', n::text, sha256(''), gen_random_uuid(),
                clock_timestamp() - interval '1 hour', now() + interval '1 day', 1
         FROM generate_series(1, 1001) AS n";
    sqlx::query(insert).execute(&pool).await.unwrap();
    let live = claimed(claim(&pool, "live", "a").await);
    assert_eq!(token_claim::reap(&pool.clone().into()).await.unwrap(), 1_001);
    assert_eq!(count(&pool, "idempotency.keys").await, 1);
    live.complete(&StoredResponse::new(201, "done")).await.unwrap();
}
