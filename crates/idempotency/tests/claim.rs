//! The contract of a claim on a real database: new, replay, mismatch, in progress, and every way a
//! holder can go away.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use futures::future::join_all;
use idempotency::{
    Answer, Claim, Fingerprint, IdempotencyError, IdempotencyKey, KEY_BYTES_MAX, MIGRATOR, Scope, Terms,
    claim,
};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection, PgPool, PgTransaction};

const BODY: &[u8] = br#"{"made":"now"}"#;
/// Long enough for any answer of the database, short enough to fail by.
const PATIENCE: Duration = Duration::from_secs(20);

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text.as_bytes()).unwrap()
}

fn scope(key: &IdempotencyKey) -> Scope<'_> {
    Scope { tenant: "tenant", client: "client", key }
}

fn request(body: &str) -> Fingerprint {
    Fingerprint::of("tenant", "POST", "/things", body.as_bytes())
}

async fn attempt(tx: &mut PgTransaction<'_>, key: &IdempotencyKey, body: &str) -> Claim {
    claim(tx, &scope(key), &request(body), &Terms::default()).await.unwrap()
}

/// Carries a request out from claim to commit; the word of the claim. Every other end is rolled back
/// and waited for: a dropped transaction still holds its lock for a moment.
async fn carry_out(pool: &PgPool, key: &IdempotencyKey, body: &str) -> &'static str {
    let mut tx = pool.begin().await.unwrap();
    let word = match attempt(&mut tx, key, body).await {
        Claim::New(lease) => {
            lease.complete(&mut tx, &Answer::new(201, BODY)).await.unwrap();
            tx.commit().await.unwrap();
            return "new";
        }
        Claim::Replay(answer) => {
            assert_eq!(answer, Answer::new(201, BODY));
            "replay"
        }
        Claim::InProgress => "in progress",
        Claim::Mismatch => "mismatch",
    };
    tx.rollback().await.unwrap();
    word
}

async fn rows(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM idempotency_keys").fetch_one(pool).await.unwrap()
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_1_first_state_by_second_request(pool: PgPool) {
    let kept = key("kept");
    assert_eq!(carry_out(&pool, &kept, "a").await, "new");
    assert_eq!(carry_out(&pool, &kept, "a").await, "replay");
    assert_eq!(carry_out(&pool, &kept, "b").await, "mismatch");

    let held = key("held");
    let mut holder = pool.begin().await.unwrap();
    let Claim::New(lease) = attempt(&mut holder, &held, "a").await else { panic!("the key is unused") };
    assert_eq!(carry_out(&pool, &held, "a").await, "in progress");
    assert_eq!(carry_out(&pool, &held, "b").await, "in progress");
    lease.complete(&mut holder, &Answer::new(201, BODY)).await.unwrap();
    assert_eq!(carry_out(&pool, &held, "a").await, "in progress", "nothing is true before the commit");
    holder.commit().await.unwrap();
    assert_eq!(carry_out(&pool, &held, "a").await, "replay");
    assert_eq!(rows(&pool).await, 2);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_2_a_key_belongs_to_its_tenant_and_client(pool: PgPool) {
    let key = key("k");
    for (tenant, client) in [("t", "c"), ("t", "d"), ("u", "c")] {
        let mut tx = pool.begin().await.unwrap();
        let scope = Scope { tenant, client, key: &key };
        let Claim::New(lease) = claim(&mut tx, &scope, &request("a"), &Terms::default()).await.unwrap()
        else {
            panic!("{tenant} {client} never used the key")
        };
        lease.complete(&mut tx, &Answer::new(201, BODY)).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(rows(&pool).await, 3);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r25_of_64_twins_at_once_one_is_new(pool: PgPool) {
    let options = pool.connect_options().as_ref().clone();
    let wide = PgPoolOptions::new().max_connections(64).connect_with(options).await.unwrap();
    let key = key("twins");
    let words = join_all((0..64).map(|_| carry_out(&wide, &key, "a"))).await;
    let count = |word| words.iter().filter(|found| **found == word).count();
    assert_eq!(count("new"), 1, "{words:?}");
    assert_eq!(count("new") + count("replay") + count("in progress"), 64, "{words:?}");
    assert_eq!(rows(&wide).await, 1);
    wide.close().await;
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r26_a_dead_holder_is_taken_over_once_and_cannot_commit(pool: PgPool) {
    let key = key("orphan");
    let options = pool.connect_options();
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await.unwrap();
    let mut holder = connection.begin().await.unwrap();
    let Claim::New(lease) = attempt(&mut holder, &key, "a").await else { panic!("the key is unused") };
    lease.complete(&mut holder, &Answer::new(201, b"of the dead")).await.unwrap();

    sqlx::query("SELECT pg_terminate_backend($1, 10000)").bind(pid).execute(&pool).await.unwrap();
    let words = join_all((0..4).map(|_| carry_out(&pool, &key, "a"))).await;
    assert_eq!(words.iter().filter(|word| **word == "new").count(), 1, "{words:?}");
    assert!(holder.commit().await.is_err(), "the old holder committed");
    assert_eq!(rows(&pool).await, 1);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_4_a_holder_that_stands_still_is_cut_off(pool: PgPool) {
    let key = key("paused");
    let terms = Terms::new(24, Duration::from_millis(100)).unwrap();
    let mut holder = pool.begin().await.unwrap();
    let claimed = claim(&mut holder, &scope(&key), &request("a"), &terms).await.unwrap();
    let Claim::New(lease) = claimed else { panic!("the key is unused") };

    let taken_over = async {
        while carry_out(&pool, &key, "a").await != "new" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, taken_over).await.expect("the key was never freed");
    assert!(lease.complete(&mut holder, &Answer::new(201, b"of the paused")).await.is_err());
    assert_eq!(carry_out(&pool, &key, "a").await, "replay");
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_4_a_statement_that_hangs_is_cut_off(pool: PgPool) {
    let key = key("hanging");
    // Long enough for the way from the claim to the statement, which must hang within it.
    let terms = Terms::new(24, Duration::from_secs(2)).unwrap();
    let mut holder = pool.begin().await.unwrap();
    let _lease = claim(&mut holder, &scope(&key), &request("a"), &terms).await.unwrap();
    let cut = sqlx::query("SELECT pg_sleep(60)").execute(&mut *holder).await.unwrap_err();
    assert_eq!(cut.as_database_error().unwrap().code().as_deref(), Some("57014"));
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_1_a_refused_request_burns_no_key(pool: PgPool) {
    let key = key("refused");
    for end in ["commit", "roll back"] {
        let mut tx = pool.begin().await.unwrap();
        assert!(matches!(attempt(&mut tx, &key, end).await, Claim::New(_)));
        match end {
            "commit" => tx.commit().await.unwrap(),
            _ => tx.rollback().await.unwrap(),
        }
    }
    assert_eq!(rows(&pool).await, 0);
    assert_eq!(carry_out(&pool, &key, "another").await, "new");
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_3_a_server_error_is_never_stored(pool: PgPool) {
    let key = key("broken");
    let mut tx = pool.begin().await.unwrap();
    let Claim::New(lease) = attempt(&mut tx, &key, "a").await else { panic!("the key is unused") };
    let refused = lease.complete(&mut tx, &Answer::new(503, b"")).await.unwrap_err();
    assert!(matches!(refused, IdempotencyError::NotStorable { status: 503 }));
    tx.commit().await.unwrap();
    assert_eq!(carry_out(&pool, &key, "a").await, "new");
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn an_expired_key_is_unused(pool: PgPool) {
    let key = key("old");
    assert_eq!(carry_out(&pool, &key, "a").await, "new");
    support::age(&pool, 25).await;
    assert_eq!(carry_out(&pool, &key, "b").await, "new");
    assert_eq!(carry_out(&pool, &key, "a").await, "mismatch");
    let kept: bool =
        sqlx::query_scalar("SELECT max(expires_at) > now() + interval '23 h' FROM idempotency_keys")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert!(kept);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_2_rows_of_the_version_before_are_read_and_a_later_one_is_not_guessed_at(pool: PgPool) {
    for version in [1_i16, 2, 3] {
        let key = key(&format!("of-{version}"));
        assert_eq!(carry_out(&pool, &key, "a").await, "new");
        sqlx::query("UPDATE idempotency_keys SET schema_version = $1 WHERE key = $2")
            .bind(version)
            .bind(key.as_str())
            .execute(&pool)
            .await
            .unwrap();
    }
    assert_eq!(carry_out(&pool, &key("of-1"), "a").await, "replay");
    assert_eq!(carry_out(&pool, &key("of-1"), "b").await, "mismatch");
    assert_eq!(carry_out(&pool, &key("of-2"), "a").await, "replay");
    let mut tx = pool.begin().await.unwrap();
    let refused = claim(&mut tx, &scope(&key("of-3")), &request("a"), &Terms::default()).await.unwrap_err();
    assert!(matches!(refused, IdempotencyError::LaterVersion { version: 3, known: 2 }));
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn the_longest_key_is_kept_whole(pool: PgPool) {
    let (one, other) = ("k".repeat(KEY_BYTES_MAX), format!("{}l", "k".repeat(KEY_BYTES_MAX - 1)));
    assert_eq!(carry_out(&pool, &key(&one), "a").await, "new");
    assert_eq!(carry_out(&pool, &key(&other), "b").await, "new");
    assert_eq!(carry_out(&pool, &key(&one), "a").await, "replay");
}
