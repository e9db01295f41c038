//! An event becomes one delivery for each active endpoint of its tenant that receives its kind, with the exact body that is
//! sent.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;
use trace_kit::TraceParent;

/// Longest event id, in bytes; it is sent as `webhook-id`.
const EVENT_ID_BYTES_MAX: usize = 256;

/// An event of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct WebhookEvent<'a> {
    /// The tenant whose endpoints receive it.
    pub tenant: &'a str,
    /// Identifies the event; each attempt has the same id, so that receivers recognise repeats.
    pub event_id: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Schema version of `data`.
    pub version: i32,
    /// The subject of the event; receivers order events per key.
    pub key: &'a str,
    /// Sequence number among the events of its key, from 1.
    pub sequence: i64,
    /// When the event occurred.
    pub at: Timestamp,
    /// The payload.
    pub data: &'a Value,
}

/// The body of a delivery: the fields of Standard Webhooks (type, timestamp, data), and key and sequence for the order.
#[derive(Serialize)]
struct DeliveryBody<'a> {
    r#type: &'a str,
    timestamp: Timestamp,
    version: i32,
    key: &'a str,
    sequence: i64,
    data: &'a Value,
}

/// The deliveries of an event could not be written.
#[derive(Debug, thiserror::Error)]
pub enum FanOutError {
    /// The id is not a header value, or contains a dot, which would make the signed text ambiguous.
    #[error(
        "the webhook deliveries of an event were not written: the event's id must have 1 to {EVENT_ID_BYTES_MAX} visible ASCII characters and no dot"
    )]
    EventId,
    /// The body could not be serialised.
    #[error(
        "the webhook deliveries of an event were not written: the event's body could not be serialised as JSON; this is a software defect"
    )]
    Serialization(#[from] serde_json::Error),
    /// Whether the deliveries are stored is unknown.
    #[error(
        "the database did not answer while the webhook deliveries of an event were written; the broker delivers the event again"
    )]
    Database(#[from] sqlx::Error),
}

impl WebhookEvent<'_> {
    /// The exact body of a delivery.
    ///
    /// # Errors
    /// The payload cannot be serialised.
    pub fn body(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&DeliveryBody {
            r#type: self.kind,
            timestamp: self.at,
            version: self.version,
            key: self.key,
            sequence: self.sequence,
            data: self.data,
        })
    }
}

/// Inserts the deliveries of an event in the caller's transaction; returns how many were newly inserted. A repeat inserts
/// none. The attempts will be spans of the task's current trace.
///
/// # Errors
/// [`FanOutError`]: the transaction must not be committed.
pub async fn fan_out(tx: &mut PgConnection, event: &WebhookEvent<'_>) -> Result<u64, FanOutError> {
    let id = event.event_id;
    let is_permitted = |byte: u8| byte.is_ascii_graphic() && byte != b'.';
    if id.is_empty() || id.len() > EVENT_ID_BYTES_MAX || !id.bytes().all(is_permitted) {
        return Err(FanOutError::EventId);
    }
    let body = event.body()?;
    let rows = sqlx::query!(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body, trace_parent)
         SELECT endpoint_id, $2, $3, $4, $5 FROM webhook_endpoints
         WHERE tenant_id = $1 AND status = 'active' AND (kinds = '{}' OR $3 = ANY(kinds))
         ON CONFLICT DO NOTHING",
        event.tenant,
        id,
        event.kind,
        body,
        TraceParent::current().map(|position| position.to_string()),
    )
    .execute(tx)
    .await?;
    Ok(rows.rows_affected())
}
