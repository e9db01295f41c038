//! An event becomes one delivery for each active endpoint of its tenant that receives its kind, with the exact body that is
//! sent.

use std::collections::HashSet;

use jiff::Timestamp;
use postgres_kit::Connection;
use serde::Serialize;
use serde_json::Value;
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
    /// Position in the event's trace: the attempts are spans of this trace.
    pub trace_parent: Option<&'a TraceParent>,
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

/// The deliveries of events could not be written.
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

/// Inserts the deliveries of events in the caller's transaction; returns how many were newly inserted. A repeat inserts none.
///
/// # Errors
/// [`FanOutError`]: the transaction must not be committed.
pub async fn fan_out(tx: &mut Connection, events: &[WebhookEvent<'_>]) -> Result<u64, FanOutError> {
    if !events.iter().all(|event| is_permitted_id(event.event_id)) {
        return Err(FanOutError::EventId);
    }
    let tenants = tenants_with_endpoints(tx, events).await?;
    // Mostly no tenant has an endpoint: then no body is built and nothing is written.
    if tenants.is_empty() {
        return Ok(0);
    }
    let (mut owners, mut ids, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bodies, mut trace_parents) = (Vec::new(), Vec::new());
    for event in events.iter().filter(|event| tenants.contains(event.tenant)) {
        owners.push(event.tenant);
        ids.push(event.event_id);
        kinds.push(event.kind);
        bodies.push(event.body()?);
        trace_parents.push(event.trace_parent.map(TraceParent::to_string));
    }
    let rows = sqlx::query!(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body, trace_parent)
         SELECT endpoint_id, event_id, kind, body, trace_parent
         FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
              WITH ORDINALITY AS event (tenant_id, event_id, kind, body, trace_parent, n)
         JOIN webhook_endpoints AS endpoint USING (tenant_id)
         WHERE status = 'active' AND (kinds = '{}' OR kind = ANY(kinds))
         ORDER BY n, endpoint_id
         ON CONFLICT DO NOTHING",
        &owners as &[&str],
        &ids as &[&str],
        &kinds as &[&str],
        &bodies,
        &trace_parents as &[Option<String>],
    )
    .execute(tx)
    .await?;
    Ok(rows.rows_affected())
}

fn is_permitted_id(id: &str) -> bool {
    let is_permitted = |byte: u8| byte.is_ascii_graphic() && byte != b'.';
    (1..=EVENT_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_permitted)
}

/// The tenants of the events that have an active endpoint.
async fn tenants_with_endpoints(
    tx: &mut Connection,
    events: &[WebhookEvent<'_>],
) -> Result<HashSet<String>, sqlx::Error> {
    let tenants: HashSet<&str> = events.iter().map(|event| event.tenant).collect();
    let tenants: Vec<&str> = tenants.into_iter().collect();
    let with_endpoints = sqlx::query_scalar!(
        "SELECT DISTINCT tenant_id FROM webhook_endpoints WHERE tenant_id = ANY($1) AND status = 'active'",
        &tenants as &[&str],
    )
    .fetch_all(tx)
    .await?;
    Ok(with_endpoints.into_iter().collect())
}
