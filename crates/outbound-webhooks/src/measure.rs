//! The numbers of the gauges: endpoints and pending deliveries.

use postgres_kit::Pool;

use crate::WebhooksError;

/// Upper bound of deliveries that are counted, to bound the cost.
const COUNTED_MAX: i64 = 10_000;

/// Numbers of endpoints and deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebhookBacklog {
    /// Active endpoints.
    pub active: i64,
    /// Disabled endpoints, for any reason.
    pub disabled: i64,
    /// Pending deliveries to active endpoints; 10,000 means at least that many.
    pub pending: i64,
    /// Pending deliveries that are due; 10,000 means at least that many.
    pub due: i64,
    /// Age of the oldest due delivery, in milliseconds; 0 if none is due.
    pub oldest_due_ms: i64,
}

/// Counts endpoints and deliveries, by the database's clock and with indexes.
///
/// # Errors
/// [`WebhooksError`].
pub async fn measure(pool: &Pool) -> Result<WebhookBacklog, WebhooksError> {
    Ok(sqlx::query_as!(
        WebhookBacklog,
        r#"SELECT (SELECT count(*) FROM webhook_endpoints WHERE status = 'active') AS "active!",
                  (SELECT count(*) FROM webhook_endpoints WHERE status = 'disabled') AS "disabled!",
                  (SELECT count(*) FROM (
                      SELECT FROM webhook_endpoints e CROSS JOIN LATERAL (
                          SELECT FROM webhook_deliveries d
                          WHERE d.endpoint_id = e.endpoint_id AND d.state = 'pending' LIMIT $1) pending
                      WHERE e.status = 'active' LIMIT $1) counted) AS "pending!",
                  (SELECT count(*) FROM (
                      SELECT FROM webhook_endpoints e CROSS JOIN LATERAL (
                          SELECT FROM webhook_deliveries d
                          WHERE d.endpoint_id = e.endpoint_id AND d.state = 'pending' AND d.next_attempt_at <= now() LIMIT $1) one
                      WHERE e.status = 'active' LIMIT $1) counted) AS "due!",
                  (SELECT coalesce(greatest(extract(epoch FROM now() - min(first.next_attempt_at)), 0) * 1000, 0)::bigint
                   FROM webhook_endpoints e CROSS JOIN LATERAL (
                       SELECT d.next_attempt_at FROM webhook_deliveries d
                       WHERE d.endpoint_id = e.endpoint_id AND d.state = 'pending' ORDER BY d.next_attempt_at LIMIT 1) first
                   WHERE e.status = 'active') AS "oldest_due_ms!""#,
        COUNTED_MAX,
    )
    .fetch_one(pool)
    .await?)
}
