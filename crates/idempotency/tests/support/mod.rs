//! The test service: stores notes, one for each key.

#![allow(dead_code, reason = "each test file is a binary of its own and uses a part of this module")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed setup fails the test")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use idempotency::http::{
    self, IdempotencyContext, IdempotencyLayer, Identify, KeyOwner, RequestRefusal, ResponseError,
};
use idempotency::{
    BatchEffect, BatchOptions, Batcher, EffectOutcome, Fingerprint, IdempotencyKey, IdempotencyOptions,
    KeyScope, RequestOutcome, StoreBreaker, StoredResponse, canonical,
};
use jiff::Timestamp;
use postgres_kit::Connection;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// One note; its id is derived from tenant, client and key, so it outlives its key.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) id: String,
    pub(crate) hash: Vec<u8>,
    /// `refuse` is refused, `fail` gets a stored 410, `break` fails the statement, `panic` panics; every other text is stored.
    pub(crate) text: String,
}

/// Stores notes, many at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes;

impl BatchEffect for Notes {
    type Request = Note;
    type Refusal = String;
    type Error = sqlx::Error;

    async fn apply(
        &self,
        tx: &mut Connection,
        _claimed_at: Timestamp,
        notes: &[&Note],
    ) -> Result<Vec<EffectOutcome<String>>, sqlx::Error> {
        if notes.iter().any(|note| note.text == "break") {
            sqlx::query("SELECT 1 / 0").execute(&mut *tx).await?;
        }
        assert!(notes.iter().all(|note| note.text != "panic"), "as a defect would");
        let accepted: Vec<&&Note> =
            notes.iter().filter(|note| !["refuse", "fail"].contains(&&*note.text)).collect();
        let inserted: Vec<String> = sqlx::query_scalar(
            "INSERT INTO notes (id, hash, body) SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[])
             ON CONFLICT DO NOTHING RETURNING id",
        )
        .bind(accepted.iter().map(|note| note.id.clone()).collect::<Vec<_>>())
        .bind(accepted.iter().map(|note| note.hash.clone()).collect::<Vec<_>>())
        .bind(accepted.iter().map(|note| body(&note.text)).collect::<Vec<_>>())
        .fetch_all(&mut *tx)
        .await?;
        let stored: Vec<(String, Vec<u8>, String)> =
            sqlx::query_as("SELECT id, hash, body FROM notes WHERE id = ANY($1)")
                .bind(notes.iter().map(|note| note.id.clone()).collect::<Vec<_>>())
                .fetch_all(&mut *tx)
                .await?;
        let stored: HashMap<String, (Vec<u8>, String)> =
            stored.into_iter().map(|(id, hash, body)| (id, (hash, body))).collect();
        Ok(notes
            .iter()
            .map(|note| match (&*note.text, stored.get(&note.id)) {
                _ if inserted.contains(&note.id) => {
                    EffectOutcome::Applied(StoredResponse::new(201, body(&note.text)))
                }
                (_, Some((hash, _))) if *hash != note.hash => EffectOutcome::Mismatch,
                (_, Some((_, body))) => {
                    EffectOutcome::AppliedEarlier(StoredResponse::new(201, body.as_bytes()))
                }
                ("fail", None) => {
                    EffectOutcome::Applied(StoredResponse::new(410, r#"{"failed":"for good"}"#))
                }
                (refused, None) => EffectOutcome::Refused(refused.to_owned()),
            })
            .collect())
    }
}

/// The response body to a note.
pub(crate) fn body(text: &str) -> String {
    format!(r#"{{"note":"{text}"}}"#)
}

pub(crate) async fn create_table(pool: &PgPool) {
    sqlx::query("CREATE TABLE notes (id text PRIMARY KEY, hash bytea NOT NULL, body text NOT NULL)")
        .execute(pool)
        .await
        .unwrap();
}

/// Moves every row `hours` into the past, into the partition of that day.
pub(crate) async fn age(pool: &PgPool, hours: i32) {
    sqlx::raw_sql(
        "DO $$
         DECLARE day date;
         BEGIN
             FOR day IN SELECT (now() AT TIME ZONE 'UTC')::date - n FROM generate_series(1, 5) AS n LOOP
                 EXECUTE format('CREATE TABLE IF NOT EXISTS idempotency.%I PARTITION OF idempotency.keys FOR VALUES FROM (%L) TO (%L)',
                                'keys_' || to_char(day, 'YYYYMMDD'), day, day + 1);
             END LOOP;
         END $$",
    )
    .execute(pool)
    .await
    .unwrap();
    sqlx::query(
        "UPDATE idempotency.keys
         SET created_at = created_at - $1 * interval '1 hour', expires_at = expires_at - $1 * interval '1 hour',
             completed_at = completed_at - $1 * interval '1 hour', lease_until = lease_until - $1 * interval '1 hour',
             created_on = ((created_at - $1 * interval '1 hour') AT TIME ZONE 'UTC')::date",
    )
    .bind(hours)
    .execute(pool)
    .await
    .unwrap();
}

/// Waits until midnight (UTC) has passed if it is within a minute: the date must not change during a test that counts days.
pub(crate) async fn avoid_midnight(pool: &PgPool) {
    sqlx::query(
        "SELECT pg_sleep(left_s + 1)
         FROM (SELECT 86400 - extract(epoch FROM clock_timestamp()) % 86400 AS left_s) AS today
         WHERE left_s < 60",
    )
    .execute(pool)
    .await
    .unwrap();
}

/// The attached day partitions, as days relative to today.
pub(crate) async fn attached_days(pool: &PgPool) -> Vec<i32> {
    sqlx::query_scalar(
        "SELECT to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD') - (now() AT TIME ZONE 'UTC')::date
         FROM pg_inherits WHERE inhparent = 'idempotency.keys'::regclass ORDER BY 1",
    )
    .fetch_all(pool)
    .await
    .unwrap()
}

/// Number of partition tables, attached or detached.
pub(crate) async fn partition_tables(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM pg_class WHERE relnamespace = 'idempotency'::regnamespace AND relname ~ '^keys_[0-9]{8}$'")
        .fetch_one(pool)
        .await
        .unwrap()
}

pub(crate) async fn count(pool: &PgPool, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(pool).await.unwrap()
}

pub(crate) fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text.as_bytes()).unwrap()
}

pub(crate) fn scope(key: &IdempotencyKey) -> KeyScope<'_> {
    KeyScope { tenant: "t", client: "c", key }
}

/// The fingerprint that the service computes for a note.
pub(crate) fn fingerprint(text: &str) -> Fingerprint {
    Fingerprint::of("t", "POST", "/notes", format!("{{\"text\":\"{text}\"}}").as_bytes())
}

pub(crate) fn note(key: &str, text: &str) -> Note {
    Note { id: format!("t/c/{key}"), hash: fingerprint(text).as_bytes().to_vec(), text: text.to_owned() }
}

pub(crate) fn batcher(pool: &PgPool, width: BatchOptions) -> Batcher<Notes> {
    let breaker = Arc::new(StoreBreaker::default());
    Batcher::start(
        Notes,
        pool.clone(),
        IdempotencyOptions::default(),
        width,
        breaker,
        &CancellationToken::new(),
    )
}

/// Stores a note under a key.
pub(crate) async fn store_note(
    batcher: &Batcher<Notes>,
    key: &str,
    text: &str,
) -> Result<RequestOutcome<String>, idempotency::IdempotencyError> {
    let parsed = IdempotencyKey::parse(key.as_bytes()).unwrap();
    batcher.execute(&scope(&parsed), &fingerprint(text), note(key, text)).await
}

#[derive(Clone)]
struct ByHeader;

impl Identify for ByHeader {
    async fn identify(&self, parts: &mut Parts) -> Result<KeyOwner, Response> {
        let owner = parts.headers.get("x-owner").and_then(|value| value.to_str().ok()?.split_once('/'));
        let (tenant, client) = owner.ok_or_else(|| StatusCode::UNAUTHORIZED.into_response())?;
        Ok(KeyOwner { tenant: tenant.to_owned(), client: client.to_owned() })
    }
}

/// The service over HTTP.
pub(crate) fn service(batcher: Batcher<Notes>) -> Router {
    Router::new()
        .route("/notes", post(create_note).get(|| async { "notes" }))
        .route("/other", post(create_note))
        .route("/open", get(|| async { "open" }))
        .layer(IdempotencyLayer::new(ByHeader))
        .with_state(batcher)
}

async fn create_note(
    State(batcher): State<Batcher<Notes>>,
    context: IdempotencyContext,
    body: Bytes,
) -> Response {
    let Ok(canonical) = canonical::json(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let fingerprint = context.fingerprint(&canonical);
    let text =
        serde_json::from_slice::<serde_json::Value>(&body).unwrap()["text"].as_str().unwrap().to_owned();
    let scope = context.scope();
    let id = format!("{}/{}/{}", scope.tenant, scope.client, scope.key);
    let note = Note { id, hash: fingerprint.as_bytes().to_vec(), text };
    match batcher.execute(&scope, &fingerprint, note).await.map(http::response) {
        Ok(Ok(response)) => response,
        Ok(Err(ResponseError::Key(refusal))) => refusal.into_response(),
        Ok(Err(ResponseError::BatchEffect(text))) => (StatusCode::UNPROCESSABLE_ENTITY, text).into_response(),
        Err(error) => RequestRefusal::from(&error).into_response(),
    }
}

/// An HTTP response, read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl TestResponse {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// One request to the service.
pub(crate) async fn send(
    service: &Router,
    owner: &str,
    key: Option<&[u8]>,
    path: &str,
    body: &str,
) -> TestResponse {
    let mut request = Request::post(path).header("x-owner", owner);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    TestResponse {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// Longest time of any wait in these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
