//! The contract of a claim on a real database: claimed, replay, mismatch, in progress, and every way to lose a holder.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed setup fails the test")]

mod support;

use std::time::Duration;

use futures::future::join_all;
use idempotency::{
    ClaimOutcome, Fingerprint, IdempotencyError, IdempotencyKey, IdempotencyOptions, KEY_BYTES_MAX, KeyScope,
    MIGRATOR, StoredResponse, claim,
};
use postgres_kit::{Pool, Transaction};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};

const BODY: &[u8] = br#"{"made":"now"}"#;
/// Longest wait for the database.
const TIMEOUT: Duration = Duration::from_secs(20);

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text.as_bytes()).unwrap()
}

fn scope(key: &IdempotencyKey) -> KeyScope<'_> {
    KeyScope { tenant: "tenant", client: "client", key }
}

fn request(body: &str) -> Fingerprint {
    Fingerprint::of("tenant", "POST", "/things", body.as_bytes())
}

async fn attempt(tx: &mut Transaction, key: &IdempotencyKey, body: &str) -> ClaimOutcome {
    claim(tx, &scope(key), &request(body), &IdempotencyOptions::default()).await.unwrap()
}

/// Executes a request from claim to commit and returns the outcome of the claim. Every other outcome is rolled back and
/// awaited: a dropped transaction still holds its lock for a moment.
async fn execute(pool: &PgPool, key: &IdempotencyKey, body: &str) -> &'static str {
    let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
    let outcome = match attempt(&mut tx, key, body).await {
        ClaimOutcome::Claimed(lease) => {
            lease.complete(&mut tx, &StoredResponse::new(201, BODY)).await.unwrap();
            tx.commit().await.unwrap();
            return "claimed";
        }
        ClaimOutcome::Replay(response) => {
            assert_eq!(response, StoredResponse::new(201, BODY));
            "replay"
        }
        ClaimOutcome::InProgress => "in progress",
        ClaimOutcome::Mismatch => "mismatch",
    };
    tx.rollback().await.unwrap();
    outcome
}

async fn rows(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM idempotency.keys").fetch_one(pool).await.unwrap()
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_1_a_second_claim_of_an_idempotency_key_sees_the_first_ones_state(pool: PgPool) {
    let completed = key("completed");
    assert_eq!(execute(&pool, &completed, "a").await, "claimed");
    assert_eq!(execute(&pool, &completed, "a").await, "replay");
    assert_eq!(execute(&pool, &completed, "b").await, "mismatch");

    let held = key("held");
    let mut holder = Pool::from(pool.clone()).begin().await.unwrap();
    let ClaimOutcome::Claimed(lease) = attempt(&mut holder, &held, "a").await else {
        panic!("the key is unused")
    };
    assert_eq!(execute(&pool, &held, "a").await, "in progress");
    assert_eq!(execute(&pool, &held, "b").await, "in progress");
    lease.complete(&mut holder, &StoredResponse::new(201, BODY)).await.unwrap();
    assert_eq!(execute(&pool, &held, "a").await, "in progress", "expected no replay before the commit");
    holder.commit().await.unwrap();
    assert_eq!(execute(&pool, &held, "a").await, "replay");
    assert_eq!(rows(&pool).await, 2);
}

/// Repeats of a completed request that arrive together: each finds the response, although one of them holds the key's lock.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_1_concurrent_repeats_of_a_completed_request_are_all_replayed(pool: PgPool) {
    let completed = key("completed");
    assert_eq!(execute(&pool, &completed, "a").await, "claimed");
    let mut repeat = Pool::from(pool.clone()).begin().await.unwrap();
    assert!(matches!(attempt(&mut repeat, &completed, "a").await, ClaimOutcome::Replay(_)));
    // The lock of that repeat is held until its transaction ends.
    assert_eq!(execute(&pool, &completed, "a").await, "replay");
    assert_eq!(execute(&pool, &completed, "b").await, "mismatch");
    repeat.rollback().await.unwrap();
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_2_an_idempotency_key_belongs_to_its_tenant_and_client(pool: PgPool) {
    let key = key("k");
    for (tenant, client) in [("t", "c"), ("t", "d"), ("u", "c")] {
        let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
        let scope = KeyScope { tenant, client, key: &key };
        let ClaimOutcome::Claimed(lease) =
            claim(&mut tx, &scope, &request("a"), &IdempotencyOptions::default()).await.unwrap()
        else {
            panic!("the key is unused for {tenant} {client}")
        };
        lease.complete(&mut tx, &StoredResponse::new(201, BODY)).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(rows(&pool).await, 3);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r25_of_64_duplicate_requests_one_claims_the_idempotency_key(pool: PgPool) {
    let options = pool.connect_options().as_ref().clone();
    let wide = PgPoolOptions::new().max_connections(64).connect_with(options).await.unwrap();
    let key = key("duplicates");
    let outcomes = join_all((0..64).map(|_| execute(&wide, &key, "a"))).await;
    let count = |expected| outcomes.iter().filter(|outcome| **outcome == expected).count();
    assert_eq!(count("claimed"), 1, "{outcomes:?}");
    assert_eq!(count("claimed") + count("replay") + count("in progress"), 64, "{outcomes:?}");
    assert_eq!(rows(&wide).await, 1);
    wide.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r26_a_crashed_idempotency_claim_is_replaced_once_and_cannot_commit(pool: PgPool) {
    let key = key("orphan");
    let mut holder = Pool::from(pool.clone()).begin().await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *holder).await.unwrap();
    let ClaimOutcome::Claimed(lease) = attempt(&mut holder, &key, "a").await else {
        panic!("the key is unused")
    };
    lease.complete(&mut holder, &StoredResponse::new(201, b"of the crashed holder")).await.unwrap();

    sqlx::query("SELECT pg_terminate_backend($1, 10000)").bind(pid).execute(&pool).await.unwrap();
    let outcomes = join_all((0..4).map(|_| execute(&pool, &key, "a"))).await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == "claimed").count(), 1, "{outcomes:?}");
    assert!(holder.commit().await.is_err(), "expected the commit of the crashed holder to fail");
    assert_eq!(rows(&pool).await, 1);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_4_a_stalled_idempotency_key_holder_is_disconnected(pool: PgPool) {
    let key = key("paused");
    let options = IdempotencyOptions::new(24, Duration::from_millis(100)).unwrap();
    let mut holder = Pool::from(pool.clone()).begin().await.unwrap();
    let claimed = claim(&mut holder, &scope(&key), &request("a"), &options).await.unwrap();
    let ClaimOutcome::Claimed(lease) = claimed else { panic!("the key is unused") };

    let taken_over = async {
        while execute(&pool, &key, "a").await != "claimed" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, taken_over).await.expect("the key was not released");
    assert!(lease.complete(&mut holder, &StoredResponse::new(201, b"of the stalled holder")).await.is_err());
    assert_eq!(execute(&pool, &key, "a").await, "replay");
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_4_a_statement_that_outlasts_its_idempotency_lease_is_aborted(pool: PgPool) {
    let key = key("hanging");
    // Longer than the time from the claim to the statement.
    let options = IdempotencyOptions::new(24, Duration::from_secs(2)).unwrap();
    let mut holder = Pool::from(pool.clone()).begin().await.unwrap();
    let _lease = claim(&mut holder, &scope(&key), &request("a"), &options).await.unwrap();
    let error = sqlx::query("SELECT pg_sleep(60)").execute(&mut *holder).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("57014"));
}

/// The session's own limit is that of its client: beyond it nobody waits for the statement.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_4_an_idempotency_claim_raises_no_limit_of_its_session(pool: PgPool) {
    for (limit, expected) in [("0", "30s"), ("8s", "8s"), ("30s", "30s"), ("1min", "30s")] {
        let key = key(limit);
        let options = IdempotencyOptions::new(24, Duration::from_secs(30)).unwrap();
        let mut holder = Pool::from(pool.clone()).begin().await.unwrap();
        let own = format!("SET LOCAL statement_timeout = '{limit}'");
        sqlx::raw_sql(AssertSqlSafe(own)).execute(&mut *holder).await.unwrap();
        let _lease = claim(&mut holder, &scope(&key), &request("a"), &options).await.unwrap();
        let applied: String =
            sqlx::query_scalar("SHOW statement_timeout").fetch_one(&mut *holder).await.unwrap();
        assert_eq!(applied, expected, "the session's limit is {limit}");
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_1_a_refused_request_uses_up_no_idempotency_key(pool: PgPool) {
    let key = key("refused");
    for end in ["commit", "roll back"] {
        let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
        assert!(matches!(attempt(&mut tx, &key, end).await, ClaimOutcome::Claimed(_)));
        match end {
            "commit" => tx.commit().await.unwrap(),
            _ => tx.rollback().await.unwrap(),
        }
    }
    assert_eq!(rows(&pool).await, 0);
    assert_eq!(execute(&pool, &key, "another").await, "claimed");
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_3_a_server_error_is_never_stored_as_an_idempotent_response(pool: PgPool) {
    let key = key("broken");
    let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
    let ClaimOutcome::Claimed(lease) = attempt(&mut tx, &key, "a").await else { panic!("the key is unused") };
    let error = lease.complete(&mut tx, &StoredResponse::new(503, b"")).await.unwrap_err();
    assert!(matches!(error, IdempotencyError::NotStorable { status: 503 }));
    tx.commit().await.unwrap();
    assert_eq!(execute(&pool, &key, "a").await, "claimed");
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn an_expired_idempotency_key_counts_as_unused(pool: PgPool) {
    let key = key("old");
    assert_eq!(execute(&pool, &key, "a").await, "claimed");
    support::age(&pool, 25).await;
    assert_eq!(execute(&pool, &key, "b").await, "claimed");
    assert_eq!(execute(&pool, &key, "a").await, "mismatch");
    let is_retained: bool =
        sqlx::query_scalar("SELECT max(expires_at) > now() + interval '23 h' FROM idempotency.keys")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert!(is_retained);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_2_older_idempotency_row_versions_are_read_and_newer_ones_refused(pool: PgPool) {
    for version in [1_i16, 2, 3] {
        let key = key(&format!("of-{version}"));
        assert_eq!(execute(&pool, &key, "a").await, "claimed");
        sqlx::query("UPDATE idempotency.keys SET schema_version = $1 WHERE key = $2")
            .bind(version)
            .bind(key.as_str())
            .execute(&pool)
            .await
            .unwrap();
    }
    assert_eq!(execute(&pool, &key("of-1"), "a").await, "replay");
    assert_eq!(execute(&pool, &key("of-1"), "b").await, "mismatch");
    assert_eq!(execute(&pool, &key("of-2"), "a").await, "replay");
    let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
    let error = claim(&mut tx, &scope(&key("of-3")), &request("a"), &IdempotencyOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error, IdempotencyError::UnsupportedSchemaVersion { version: 3, supported: 2 }));
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn the_longest_idempotency_key_is_compared_in_full(pool: PgPool) {
    let (one, other) = ("k".repeat(KEY_BYTES_MAX), format!("{}l", "k".repeat(KEY_BYTES_MAX - 1)));
    assert_eq!(execute(&pool, &key(&one), "a").await, "claimed");
    assert_eq!(execute(&pool, &key(&other), "b").await, "claimed");
    assert_eq!(execute(&pool, &key(&one), "a").await, "replay");
}
