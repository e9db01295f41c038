//! A service that keeps notes, once per key: what stands for any other in the tests of this crate.

#![allow(dead_code, reason = "each test file is a binary of its own and uses a part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

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
use idempotency::http::{self, IdempotencyLayer, Identify, Owner, Refusal, Ticket, Unanswered};
use idempotency::{
    Answer, Batcher, Breaker, Effect, Fingerprint, IdempotencyKey, Outcome, Scope, Terms, Verdict, Width,
    canonical,
};
use jiff::Timestamp;
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// One note, known for ever by whose key it came under.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) id: String,
    pub(crate) hash: Vec<u8>,
    /// `refuse` is refused, `fail` fails for good, `break` breaks the statement; the rest is kept.
    pub(crate) text: String,
}

/// Keeps notes, many at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes;

impl Effect for Notes {
    type Request = Note;
    type Refusal = String;
    type Error = sqlx::Error;

    async fn carry_out(
        &self,
        tx: &mut PgConnection,
        _claimed_at: Timestamp,
        notes: &[&Note],
    ) -> Result<Vec<Verdict<String>>, sqlx::Error> {
        let column =
            |of: fn(&Note) -> &str| -> Vec<String> { notes.iter().map(|note| of(note).to_owned()).collect() };
        if notes.iter().any(|note| note.text == "break") {
            sqlx::query("SELECT 1 / 0").execute(&mut *tx).await?;
        }
        let kept: Vec<&&Note> =
            notes.iter().filter(|note| !["refuse", "fail"].contains(&&*note.text)).collect();
        let made: Vec<String> = sqlx::query_scalar(
            "INSERT INTO notes (id, hash, body) SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[])
             ON CONFLICT DO NOTHING RETURNING id",
        )
        .bind(kept.iter().map(|note| note.id.clone()).collect::<Vec<_>>())
        .bind(kept.iter().map(|note| note.hash.clone()).collect::<Vec<_>>())
        .bind(kept.iter().map(|note| body(&note.text)).collect::<Vec<_>>())
        .fetch_all(&mut *tx)
        .await?;
        let before: Vec<(String, Vec<u8>, String)> =
            sqlx::query_as("SELECT id, hash, body FROM notes WHERE id = ANY($1)")
                .bind(column(|note| &note.id))
                .fetch_all(&mut *tx)
                .await?;
        let before: HashMap<String, (Vec<u8>, String)> =
            before.into_iter().map(|(id, hash, body)| (id, (hash, body))).collect();
        Ok(notes
            .iter()
            .map(|note| match (&*note.text, before.get(&note.id)) {
                _ if made.contains(&note.id) => Verdict::Answered(Answer::new(201, body(&note.text))),
                (_, Some((hash, _))) if *hash != note.hash => Verdict::Mismatch,
                (_, Some((_, body))) => Verdict::Before(Answer::new(201, body.as_bytes())),
                ("fail", None) => Verdict::Answered(Answer::new(410, r#"{"failed":"for good"}"#)),
                (refused, None) => Verdict::Refused(refused.to_owned()),
            })
            .collect())
    }
}

/// The answer to a note.
pub(crate) fn body(text: &str) -> String {
    format!(r#"{{"kept":"{text}"}}"#)
}

pub(crate) async fn make_table(pool: &PgPool) {
    sqlx::query("CREATE TABLE notes (id text PRIMARY KEY, hash bytea NOT NULL, body text NOT NULL)")
        .execute(pool)
        .await
        .unwrap();
}

/// Makes every row `hours` older, in the partitions of the days before, as if it had been written then.
pub(crate) async fn age(pool: &PgPool, hours: i32) {
    sqlx::raw_sql(
        "DO $$
         DECLARE day date;
         BEGIN
             FOR day IN SELECT (now() AT TIME ZONE 'UTC')::date - n FROM generate_series(1, 5) AS n LOOP
                 EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF idempotency_keys FOR VALUES FROM (%L) TO (%L)',
                                'idempotency_keys_' || to_char(day, 'YYYYMMDD'), day, day + 1);
             END LOOP;
         END $$",
    )
    .execute(pool)
    .await
    .unwrap();
    sqlx::query(
        "UPDATE idempotency_keys
         SET created_at = created_at - $1 * interval '1 hour', expires_at = expires_at - $1 * interval '1 hour',
             completed_at = completed_at - $1 * interval '1 hour', lease_until = lease_until - $1 * interval '1 hour',
             created_on = ((created_at - $1 * interval '1 hour') AT TIME ZONE 'UTC')::date",
    )
    .bind(hours)
    .execute(pool)
    .await
    .unwrap();
}

/// Waits until midnight (UTC) is over where it is near: today must be one day all through a test that counts
/// days from it.
pub(crate) async fn clear_of_midnight(pool: &PgPool) {
    sqlx::query(
        "SELECT pg_sleep(left_s + 1)
         FROM (SELECT 86400 - extract(epoch FROM clock_timestamp()) % 86400 AS left_s) AS today
         WHERE left_s < 60",
    )
    .execute(pool)
    .await
    .unwrap();
}

/// The day partitions that there are, as days from today.
pub(crate) async fn days(pool: &PgPool) -> Vec<i32> {
    sqlx::query_scalar(
        "SELECT to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD') - (now() AT TIME ZONE 'UTC')::date
         FROM pg_inherits WHERE inhparent = 'idempotency_keys'::regclass ORDER BY 1",
    )
    .fetch_all(pool)
    .await
    .unwrap()
}

/// How many days have a table, also as no part of the whole.
pub(crate) async fn tables(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM pg_class WHERE relname ~ '^idempotency_keys_[0-9]{8}$'")
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

pub(crate) fn scope(key: &IdempotencyKey) -> Scope<'_> {
    Scope { tenant: "t", client: "c", key }
}

/// The fingerprint that the service gives a note.
pub(crate) fn fingerprint(text: &str) -> Fingerprint {
    Fingerprint::of("t", "POST", "/notes", format!("{{\"text\":\"{text}\"}}").as_bytes())
}

pub(crate) fn note(key: &str, text: &str) -> Note {
    Note { id: format!("t/c/{key}"), hash: fingerprint(text).as_bytes().to_vec(), text: text.to_owned() }
}

pub(crate) fn batcher(pool: &PgPool, width: Width) -> Batcher<Notes> {
    let breaker = Arc::new(Breaker::default());
    Batcher::start(Notes, pool.clone(), Terms::default(), width, breaker, &CancellationToken::new())
}

/// Carries a note out.
pub(crate) async fn keep(
    batcher: &Batcher<Notes>,
    key: &str,
    text: &str,
) -> Result<Outcome<String>, idempotency::IdempotencyError> {
    let parsed = IdempotencyKey::parse(key.as_bytes()).unwrap();
    batcher.carry_out(&scope(&parsed), &fingerprint(text), note(key, text)).await
}

#[derive(Clone)]
struct ByHeader;

impl Identify for ByHeader {
    async fn identify(&self, parts: &mut Parts) -> Result<Owner, Response> {
        let owner = parts.headers.get("x-owner").and_then(|value| value.to_str().ok()?.split_once('/'));
        let (tenant, client) = owner.ok_or_else(|| StatusCode::UNAUTHORIZED.into_response())?;
        Ok(Owner { tenant: tenant.to_owned(), client: client.to_owned() })
    }
}

/// The service over HTTP.
pub(crate) fn service(batcher: Batcher<Notes>) -> Router {
    Router::new()
        .route("/notes", post(take).get(|| async { "notes" }))
        .route("/other", post(take))
        .route("/open", get(|| async { "open" }))
        .layer(IdempotencyLayer::new(ByHeader))
        .with_state(batcher)
}

async fn take(State(batcher): State<Batcher<Notes>>, ticket: Ticket, body: Bytes) -> Response {
    let Ok(canonical) = canonical::json(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let fingerprint = ticket.fingerprint(&canonical);
    let text =
        serde_json::from_slice::<serde_json::Value>(&body).unwrap()["text"].as_str().unwrap().to_owned();
    let scope = ticket.scope();
    let id = format!("{}/{}/{}", scope.tenant, scope.client, scope.key);
    let note = Note { id, hash: fingerprint.as_bytes().to_vec(), text };
    match batcher.carry_out(&scope, &fingerprint, note).await.map(http::answer) {
        Ok(Ok(answer)) => answer,
        Ok(Err(Unanswered::Refused(refusal))) => refusal.into_response(),
        Ok(Err(Unanswered::NotCarriedOut(text))) => (StatusCode::UNPROCESSABLE_ENTITY, text).into_response(),
        Err(error) => Refusal::from(&error).into_response(),
    }
}

/// An answer, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Said {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// One request to the service.
pub(crate) async fn send(service: &Router, owner: &str, key: Option<&[u8]>, path: &str, body: &str) -> Said {
    let mut request = Request::post(path).header("x-owner", owner);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    Said {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// Longest that anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
