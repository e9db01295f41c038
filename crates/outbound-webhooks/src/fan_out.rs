//! What an event becomes: one delivery for each active endpoint of its tenant that wants its kind, with the body as it is sent.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;

/// Longest event id, in bytes: what a receiver takes as `webhook-id`.
const EVENT_ID_BYTES_MAX: usize = 256;

/// An event, and whose it is.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Whose endpoints are told.
    pub tenant: &'a str,
    /// The same at each attempt, so that a receiver knows a repeat by it.
    pub event_id: &'a str,
    /// What kind of thing happened.
    pub kind: &'a str,
    /// Version of the form of `data`.
    pub version: i32,
    /// What it happened to.
    pub key: &'a str,
    /// Its place among the events of its key, from 1: the order of arrival says nothing.
    pub sequence: i64,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub data: &'a Value,
}

/// The body of a delivery: what Standard Webhooks asks for (type, timestamp, data) and what puts events in order.
#[derive(Serialize)]
struct Body<'a> {
    r#type: &'a str,
    timestamp: Timestamp,
    version: i32,
    key: &'a str,
    sequence: i64,
    data: &'a Value,
}

/// An event that did not become deliveries.
#[derive(Debug, thiserror::Error)]
pub enum FanOutError {
    /// The id cannot go into a header, or a dot in it would let one signed text be read as two different events.
    #[error(
        "an event's id must be 1 to {EVENT_ID_BYTES_MAX} visible ASCII characters without a dot to be sent"
    )]
    EventId,
    /// The body cannot be written.
    #[error("the event cannot be written as JSON")]
    Unwritable(#[from] serde_json::Error),
    /// No answer: whether it is stored is not known.
    #[error("the database of webhook endpoints did not answer")]
    Database(#[from] sqlx::Error),
}

/// Writes the deliveries of an event into the caller's transaction, and says how many; again changes nothing.
///
/// # Errors
/// [`FanOutError`]: the transaction must not be committed.
pub async fn fan_out(tx: &mut PgConnection, message: &Message<'_>) -> Result<u64, FanOutError> {
    let id = message.event_id;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'.';
    if id.is_empty() || id.len() > EVENT_ID_BYTES_MAX || !id.bytes().all(is_plain) {
        return Err(FanOutError::EventId);
    }
    let body = serde_json::to_string(&Body {
        r#type: message.kind,
        timestamp: message.at,
        version: message.version,
        key: message.key,
        sequence: message.sequence,
        data: message.data,
    })?;
    let rows = sqlx::query!(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body)
         SELECT endpoint_id, $2, $3, $4 FROM webhook_endpoints
         WHERE tenant_id = $1 AND status = 'active' AND (kinds = '{}' OR $3 = ANY(kinds))
         ON CONFLICT DO NOTHING",
        message.tenant,
        id,
        message.kind,
        body,
    )
    .execute(tx)
    .await?;
    Ok(rows.rows_affected())
}
