//! How much waits to be sent, and since when.

use sqlx::PgPool;

use crate::WebhooksError;

/// Deliveries that are counted at most: beyond it, that there are many is what matters.
const COUNTED_MAX: i64 = 10_000;

/// The numbers that gauges show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Endpoints that are told.
    pub active: i64,
    /// Endpoints that are disabled, for whatever reason.
    pub disabled: i64,
    /// Deliveries to active endpoints that are not made yet; 10,000 for as many and more.
    pub pending: i64,
    /// Those of them that are due; 10,000 for as many and more.
    pub due: i64,
    /// How long the longest of these has been due, in milliseconds; 0 when none is.
    pub oldest_due_ms: i64,
}

/// Measures, by the database's clock and by indexes.
///
/// # Errors
/// [`WebhooksError`].
pub async fn measure(pool: &PgPool) -> Result<Measured, WebhooksError> {
    Ok(sqlx::query_as!(
        Measured,
        r#"SELECT (SELECT count(*) FROM webhook_endpoints WHERE status = 'active') AS "active!",
                  (SELECT count(*) FROM webhook_endpoints WHERE status = 'disabled') AS "disabled!",
                  (SELECT count(*) FROM (
                      SELECT FROM webhook_endpoints e CROSS JOIN LATERAL (
                          SELECT FROM webhook_deliveries d
                          WHERE d.endpoint_id = e.endpoint_id AND d.state = 'pending' LIMIT $1) one
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
