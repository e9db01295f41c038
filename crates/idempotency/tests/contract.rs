//! The contract over HTTP as one table: state after the first request x second request. The README contains the same table,
//! which this test compares.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed setup fails the test")]

mod support;

use std::fmt::Write as _;

use axum::Router;
use idempotency::token_claim::{self, TokenClaimOutcome};
use idempotency::{BatchOptions, ClaimOutcome, IdempotencyOptions, MIGRATOR, claim};
use postgres_kit::{Pool, Transaction};
use sqlx::PgPool;
use support::{
    TestResponse, batcher, body, count, create_table, fingerprint, key, note, scope, send, service,
};

const FIRST: [&str; 9] = [
    "no record",
    "in progress, in a transaction",
    "in progress, with a token",
    "lease expired",
    "completed",
    "failed for good",
    "refused",
    "expired",
    "pruned",
];

const SECOND: [&str; 6] =
    ["same body", "other body", "no key", "malformed key", "other client", "other tenant"];

/// Brings the key into the state; returns the open transaction of a state that needs one.
async fn set_up_state(pool: &PgPool, service: &Router, state: &str, key_text: &str) -> Option<Transaction> {
    let key = key(key_text);
    let execute = async |text: &str, status: u16| {
        let response = post(service, key_text, text).await;
        assert_eq!(response.status, status, "{state}");
    };
    let sql = async |sql: &'static str| {
        let changed = sqlx::query(sql).bind(key_text).execute(pool).await.unwrap();
        assert_eq!(changed.rows_affected(), 1, "{state}: {sql}");
    };
    let claim_with_token = async || {
        token_claim::claim(
            &pool.clone().into(),
            &scope(&key),
            &fingerprint("a"),
            &IdempotencyOptions::default(),
        )
        .await
        .unwrap()
    };
    match state {
        "no record" => {}
        "in progress, in a transaction" => {
            let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
            let claim = claim(&mut tx, &scope(&key), &fingerprint("a"), &IdempotencyOptions::default())
                .await
                .unwrap();
            assert!(matches!(claim, ClaimOutcome::Claimed(_)));
            return Some(tx);
        }
        "in progress, with a token" => {
            assert!(matches!(claim_with_token().await, TokenClaimOutcome::Claimed(_)))
        }
        "lease expired" => {
            assert!(matches!(claim_with_token().await, TokenClaimOutcome::Claimed(_)));
            sql("UPDATE idempotency.keys SET lease_until = now() - interval '1 millisecond' WHERE key = $1")
                .await;
        }
        "completed" => execute("a", 201).await,
        "failed for good" => execute("fail", 410).await,
        "refused" => execute("refuse", 422).await,
        "expired" => {
            execute("a", 201).await;
            sql("UPDATE idempotency.keys SET created_at = now() - interval '2 days', expires_at = now() WHERE key = $1")
                .await;
        }
        "pruned" => {
            execute("a", 201).await;
            sql("DELETE FROM idempotency.keys WHERE key = $1").await;
        }
        other => panic!("{other}"),
    }
    None
}

async fn post(service: &Router, key: &str, text: &str) -> TestResponse {
    send(service, "t/c", Some(key.as_bytes()), "/notes", &format!("{{\"text\":\"{text}\"}}")).await
}

/// The text of the first request in this state.
fn first_text(state: &str) -> &'static str {
    match state {
        "failed for good" => "fail",
        "refused" => "refuse",
        _ => "a",
    }
}

async fn send_second(service: &Router, state: &str, request: &str, key: &str) -> TestResponse {
    let same = format!("{{ \"text\" : \"{}\" }}", first_text(state));
    let key = key.as_bytes();
    match request {
        "same body" => send(service, "t/c", Some(key), "/notes", &same).await,
        "other body" => send(service, "t/c", Some(key), "/notes", "{\"text\":\"b\"}").await,
        "no key" => send(service, "t/c", None, "/notes", &same).await,
        "malformed key" => send(service, "t/c", Some(b"two words"), "/notes", &same).await,
        "other client" => send(service, "t/d", Some(key), "/notes", &same).await,
        "other tenant" => send(service, "u/c", Some(key), "/notes", &same).await,
        other => panic!("{other}"),
    }
}

/// One row of the contract table.
fn row(first: &str, second: &str, response: &TestResponse) -> String {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let code = serde_json::from_str::<serde_json::Value>(&response.body)
        .ok()
        .and_then(|problem| Some(problem.get("code")?.as_str()?.to_owned()));
    let body = code.unwrap_or_else(|| response.body.clone());
    format!(
        "{first:<30} {second:<14} {} {:<7} {:<5} {body}",
        response.status,
        or_dash(response.header("idempotent-replay")),
        or_dash(response.header("retry-after")),
    )
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r25_s4_1_each_repeat_in_each_idempotency_state_matches_the_contract(pool: PgPool) {
    create_table(&pool).await;
    let service = service(batcher(&pool, BatchOptions::default()));
    let mut table = String::new();
    writeln!(table, "{:<30} {:<14} {:<3} {:<7} {:<5} body", "first request", "second", "", "replay", "retry")
        .unwrap();
    for (n, first) in FIRST.iter().enumerate() {
        for (m, request) in SECOND.iter().enumerate() {
            let key = format!("key-{n}-{m}");
            let transaction = set_up_state(&pool, &service, first, &key).await;
            let response = send_second(&service, first, request, &key).await;
            if *request == "same body" && response.header("idempotent-replay") == "true" {
                let again = send_second(&service, first, request, &key).await;
                assert_eq!(again, response, "expected identical replays");
            }
            if let Some(tx) = transaction {
                tx.rollback().await.unwrap();
            }
            writeln!(table, "{}", row(first, request, &response)).unwrap();
        }
    }
    let readme = include_str!("../README.md");
    assert!(readme.contains(&table), "the README does not contain this table:\n{table}");
}

/// The path is part of the fingerprint; the spelling of the key, quoted or bare, is not.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_3_the_idempotency_fingerprint_covers_the_whole_request(pool: PgPool) {
    create_table(&pool).await;
    let service = service(batcher(&pool, BatchOptions::default()));
    let post = async |key: &[u8], path: &str| {
        let response = send(&service, "t/c", Some(key), path, "{\"text\":\"a\"}").await;
        (response.status, response.header("idempotent-replay").to_owned())
    };
    assert_eq!(post(b"k", "/notes").await, (201, "false".into()));
    assert_eq!(post(b"\"k\"", "/notes").await, (200, "true".into()));
    assert_eq!(post(b"k", "/other").await, (422, String::new()));
    assert_eq!(count(&pool, "notes").await, 1);
}

/// An unknown caller learns nothing about keys; safe methods need none.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_1_unsafe_http_methods_require_an_idempotency_key(pool: PgPool) {
    create_table(&pool).await;
    let service = service(batcher(&pool, BatchOptions::default()));
    assert_eq!(send(&service, "unknown", None, "/notes", "{}").await.status, 401);
    assert_eq!(send(&service, "t/c", None, "/notes", "{}").await.status, 400);
    let get = axum::http::Request::get("/notes").body(axum::body::Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(service, get).await.unwrap();
    assert_eq!(response.status(), 200);
    let _ = (note("k", "a"), body("a"));
}
