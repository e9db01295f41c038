//! The whole contract over HTTP: (what the first request left) x (what the second one is), as one table. It is the
//! table of the README, compared with it word for word.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::fmt::Write as _;

use axum::Router;
use idempotency::outside::{self, Begun};
use idempotency::{Claim, MIGRATOR, Terms, Width, claim};
use sqlx::{PgPool, PgTransaction};
use support::{Said, batcher, body, count, fingerprint, key, make_table, note, scope, send, service};

const FIRST: [&str; 9] = [
    "no record",
    "in progress, in a transaction",
    "in progress, outside",
    "lease passed",
    "completed",
    "failed for good",
    "refused",
    "expired",
    "pruned",
];

const SECOND: [&str; 6] =
    ["same body", "other body", "no key", "malformed key", "other client", "other tenant"];

/// Brings the key `key` into the state, and gives what must be kept alive for it.
async fn bring_about(
    pool: &PgPool,
    service: &Router,
    state: &str,
    key_text: &str,
) -> Option<PgTransaction<'static>> {
    let key = key(key_text);
    let carried_out = async |text: &str, status: u16| {
        let said = post(service, key_text, text).await;
        assert_eq!(said.status, status, "{state}");
    };
    let sql = async |sql: &'static str| {
        let changed = sqlx::query(sql).bind(key_text).execute(pool).await.unwrap();
        assert_eq!(changed.rows_affected(), 1, "{state}: {sql}");
    };
    let begun =
        async || outside::begin(pool, &scope(&key), &fingerprint("a"), &Terms::default()).await.unwrap();
    match state {
        "no record" => {}
        "in progress, in a transaction" => {
            let mut tx = pool.begin().await.unwrap();
            let claim = claim(&mut tx, &scope(&key), &fingerprint("a"), &Terms::default()).await.unwrap();
            assert!(matches!(claim, Claim::New(_)));
            return Some(tx);
        }
        "in progress, outside" => assert!(matches!(begun().await, Begun::Held(_))),
        "lease passed" => {
            assert!(matches!(begun().await, Begun::Held(_)));
            sql("UPDATE idempotency_keys SET lease_until = now() - interval '1 millisecond' WHERE key = $1")
                .await;
        }
        "completed" => carried_out("a", 201).await,
        "failed for good" => carried_out("fail", 410).await,
        "refused" => carried_out("refuse", 422).await,
        "expired" => {
            carried_out("a", 201).await;
            sql("UPDATE idempotency_keys SET created_at = now() - interval '2 days', expires_at = now() WHERE key = $1")
                .await;
        }
        "pruned" => {
            carried_out("a", 201).await;
            sql("DELETE FROM idempotency_keys WHERE key = $1").await;
        }
        other => panic!("{other}"),
    }
    None
}

async fn post(service: &Router, key: &str, text: &str) -> Said {
    send(service, "t/c", Some(key.as_bytes()), "/notes", &format!("{{\"text\":\"{text}\"}}")).await
}

/// The first request's text in this state.
fn first_text(state: &str) -> &'static str {
    match state {
        "failed for good" => "fail",
        "refused" => "refuse",
        _ => "a",
    }
}

async fn second(service: &Router, state: &str, request: &str, key: &str) -> Said {
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

/// One line of the table.
fn line(first: &str, second: &str, said: &Said) -> String {
    let told = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let code = serde_json::from_str::<serde_json::Value>(&said.body)
        .ok()
        .and_then(|problem| Some(problem.get("code")?.as_str()?.to_owned()));
    let body = code.unwrap_or_else(|| said.body.clone());
    format!(
        "{first:<30} {second:<14} {} {:<7} {:<5} {body}",
        said.status,
        told(said.header("idempotent-replay")),
        told(said.header("retry-after")),
    )
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r25_s4_1_the_whole_contract(pool: PgPool) {
    make_table(&pool).await;
    let service = service(batcher(&pool, Width::default()));
    let mut table = String::new();
    writeln!(table, "{:<30} {:<14} {:<3} {:<7} {:<5} body", "first request", "second", "", "replay", "retry")
        .unwrap();
    for (n, first) in FIRST.iter().enumerate() {
        for (m, request) in SECOND.iter().enumerate() {
            let key = format!("key-{n}-{m}");
            let held = bring_about(&pool, &service, first, &key).await;
            let said = second(&service, first, request, &key).await;
            if *request == "same body" && said.header("idempotent-replay") == "true" {
                let again = second(&service, first, request, &key).await;
                assert_eq!(again, said, "a copy is the same each time");
            }
            if let Some(tx) = held {
                tx.rollback().await.unwrap();
            }
            writeln!(table, "{}", line(first, request, &said)).unwrap();
        }
    }
    let readme = include_str!("../README.md");
    assert!(readme.contains(&table), "the README does not have this table:\n{table}");
}

/// A route is part of the request; its key, quoted or bare, is not.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_3_the_fingerprint_is_of_the_whole_request(pool: PgPool) {
    make_table(&pool).await;
    let service = service(batcher(&pool, Width::default()));
    let said = async |key: &[u8], path: &str| {
        let said = send(&service, "t/c", Some(key), path, "{\"text\":\"a\"}").await;
        (said.status, said.header("idempotent-replay").to_owned())
    };
    assert_eq!(said(b"k", "/notes").await, (201, "false".into()));
    assert_eq!(said(b"\"k\"", "/notes").await, (200, "true".into()));
    assert_eq!(said(b"k", "/other").await, (422, String::new()));
    assert_eq!(count(&pool, "notes").await, 1);
}

/// Who is not known is told nothing of keys; what changes nothing needs none.
#[sqlx::test(migrator = "MIGRATOR")]
async fn s3_1_a_key_is_required_of_what_changes_something(pool: PgPool) {
    make_table(&pool).await;
    let service = service(batcher(&pool, Width::default()));
    assert_eq!(send(&service, "nobody", None, "/notes", "{}").await.status, 401);
    assert_eq!(send(&service, "t/c", None, "/notes", "{}").await.status, 400);
    let get = axum::http::Request::get("/notes").body(axum::body::Body::empty()).unwrap();
    let got = tower::ServiceExt::oneshot(service, get).await.unwrap();
    assert_eq!(got.status(), 200);
    let _ = (note("k", "a"), body("a"));
}
