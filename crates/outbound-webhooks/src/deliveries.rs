//! The deliveries of an endpoint with their attempts, and their replay. The event id identifies a delivery: an endpoint has
//! one delivery per event.

use std::collections::HashMap;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use postgres_kit::Connection;

use crate::{EndpointId, WebhooksError};

/// Attempts shown per delivery, the last ones.
const ATTEMPTS_SHOWN: i64 = 20;
/// Upper bound of deliveries that one call replays.
pub const REPLAYED_MAX: i64 = 1_000;

/// State of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// An attempt is scheduled or in flight.
    Pending,
    /// An attempt was answered 2xx.
    Delivered,
    /// No further attempt follows without a replay.
    Failed,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Failed];

    /// The word in the database and the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    /// Parses a word; `None` for any other.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryAttempt {
    /// When it ended.
    pub ended_at: Timestamp,
    /// Its duration, in milliseconds.
    pub duration_ms: i64,
    /// HTTP status; `None` without a response.
    pub response_status: Option<i32>,
    /// Why it failed; `None` if it succeeded.
    pub error: Option<String>,
    /// The start of the response body.
    pub response_excerpt: Option<String>,
}

/// A delivery with its last attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The event; sent as `webhook-id`.
    pub event_id: String,
    /// Its kind.
    pub kind: String,
    /// Its state.
    pub state: DeliveryState,
    /// Failed attempts since it was created or replayed.
    pub failed_attempts: i32,
    /// When the next attempt is due; `None` unless it is pending.
    pub next_attempt_at: Option<Timestamp>,
    /// When the event was consumed.
    pub created_at: Timestamp,
    /// When it was delivered or failed.
    pub ended_at: Option<Timestamp>,
    /// The last attempts, oldest first.
    pub attempts: Vec<DeliveryAttempt>,
}

/// Filter of deliveries; all conditions apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryFilter<'a> {
    /// Only deliveries in this state.
    pub state: Option<DeliveryState>,
    /// Only deliveries that the list has after the delivery of this event.
    pub after: Option<&'a str>,
}

/// Up to `limit` deliveries of an endpoint with their last attempts, newest first. The caller checks that the tenant owns the
/// endpoint.
///
/// # Errors
/// [`WebhooksError`].
pub async fn list(
    connection: &mut Connection,
    endpoint: &EndpointId,
    filter: DeliveryFilter<'_>,
    limit: i64,
) -> Result<Vec<Delivery>, WebhooksError> {
    let rows = sqlx::query!(
        "SELECT position, event_id, kind, state, failed_attempts, next_attempt_at, created_at, ended_at
         FROM webhook_deliveries
         WHERE endpoint_id = $1 AND ($2::text IS NULL OR state = $2)
           AND ($3::text IS NULL OR position < (
               SELECT a.position FROM webhook_deliveries a WHERE a.endpoint_id = $1 AND a.event_id = $3))
         ORDER BY position DESC LIMIT $4",
        endpoint.as_str(),
        filter.state.map(DeliveryState::as_str),
        filter.after,
        limit,
    )
    .fetch_all(&mut *connection)
    .await?;
    let positions: Vec<i64> = rows.iter().map(|row| row.position).collect();
    let mut attempts = attempts(connection, &positions).await?;
    rows.into_iter()
        .map(|row| {
            let state = DeliveryState::parse(&row.state).ok_or_else(|| WebhooksError::InvalidValue {
                id: row.event_id.clone(),
                column: "state",
                value: row.state.clone(),
            })?;
            Ok(Delivery {
                attempts: attempts.remove(&row.position).unwrap_or_default(),
                next_attempt_at: (state == DeliveryState::Pending).then(|| row.next_attempt_at.to_jiff()),
                event_id: row.event_id,
                kind: row.kind,
                state,
                failed_attempts: row.failed_attempts,
                created_at: row.created_at.to_jiff(),
                ended_at: row.ended_at.map(jiff_sqlx::Timestamp::to_jiff),
            })
        })
        .collect()
}

async fn attempts(
    connection: &mut Connection,
    positions: &[i64],
) -> Result<HashMap<i64, Vec<DeliveryAttempt>>, WebhooksError> {
    let rows = sqlx::query!(
        r#"SELECT a.position AS "position!", a.ended_at AS "ended_at!", a.duration_ms AS "duration_ms!", a.response_status, a.error,
                  a.response_excerpt
           FROM unnest($1::bigint[]) AS d (position)
           CROSS JOIN LATERAL (
               SELECT * FROM webhook_attempts w WHERE w.position = d.position ORDER BY w.attempt_id DESC LIMIT $2) a
           ORDER BY a.attempt_id"#,
        positions,
        ATTEMPTS_SHOWN,
    )
    .fetch_all(connection)
    .await?;
    let mut by_delivery: HashMap<i64, Vec<DeliveryAttempt>> = HashMap::new();
    for row in rows {
        by_delivery.entry(row.position).or_default().push(DeliveryAttempt {
            ended_at: row.ended_at.to_jiff(),
            duration_ms: row.duration_ms,
            response_status: row.response_status,
            error: row.error,
            response_excerpt: row.response_excerpt,
        });
    }
    Ok(by_delivery)
}

/// Outcome of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// The delivery is due now and starts the schedule again.
    Due,
    /// An attempt is in flight; nothing was changed.
    InFlight,
    /// The endpoint has no delivery of this event, or its retention has passed.
    Unknown,
}

/// Replays one delivery, whatever its state. The caller checks that the tenant owns the endpoint.
///
/// # Errors
/// [`WebhooksError`].
pub async fn replay(
    tx: &mut Connection,
    endpoint: &EndpointId,
    event_id: &str,
) -> Result<ReplayOutcome, WebhooksError> {
    let is_due = sqlx::query_scalar!(
        r#"SELECT replay_webhook_delivery($1, $2) AS "is_due!""#,
        endpoint.as_str(),
        event_id,
    );
    if is_due.fetch_one(&mut *tx).await? {
        return Ok(ReplayOutcome::Due);
    }
    let known = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM webhook_deliveries WHERE endpoint_id = $1 AND event_id = $2) AS "known!""#,
        endpoint.as_str(),
        event_id,
    )
    .fetch_one(tx)
    .await?;
    Ok(if known { ReplayOutcome::InFlight } else { ReplayOutcome::Unknown })
}

/// Replays the failed deliveries of events consumed since `since`, oldest first and at most [`REPLAYED_MAX`]; returns their
/// number. The caller checks that the tenant owns the endpoint.
///
/// # Errors
/// [`WebhooksError`].
pub async fn replay_failed(
    tx: &mut Connection,
    endpoint: &EndpointId,
    since: Timestamp,
) -> Result<u64, WebhooksError> {
    let replayed = sqlx::query_scalar!(
        r#"SELECT replay_failed_webhook_deliveries($1, $2, clock_timestamp(), $3) AS "replayed!""#,
        endpoint.as_str(),
        since.to_sqlx(),
        REPLAYED_MAX,
    );
    Ok(replayed.fetch_one(tx).await?.unsigned_abs())
}
