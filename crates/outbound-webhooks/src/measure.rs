//! How much waits to be sent, and since when.

use sqlx::PgPool;

use crate::WebhooksError;

/// The numbers that gauges show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Endpoints that are told.
    pub active: i64,
    /// Endpoints that are disabled, for whatever reason.
    pub disabled: i64,
    /// Deliveries to active endpoints that are not made yet.
    pub pending: i64,
    /// Those of them that are due.
    pub due: i64,
    /// How long the longest of these has been due, in milliseconds; 0 when none is.
    pub oldest_due_ms: i64,
}

/// Measures, by the database's clock.
///
/// # Errors
/// [`WebhooksError`].
pub async fn measure(pool: &PgPool) -> Result<Measured, WebhooksError> {
    Ok(sqlx::query_as!(
        Measured,
        r#"SELECT (SELECT count(*) FROM webhook_endpoints WHERE status = 'active') AS "active!",
                  (SELECT count(*) FROM webhook_endpoints WHERE status = 'disabled') AS "disabled!",
                  count(*) AS "pending!",
                  count(*) FILTER (WHERE d.next_at <= now()) AS "due!",
                  (coalesce(extract(epoch FROM now() - min(d.next_at) FILTER (WHERE d.next_at <= now())), 0)
                      * 1000)::bigint AS "oldest_due_ms!"
           FROM webhook_deliveries d JOIN webhook_endpoints e USING (endpoint_id)
           WHERE d.state = 'pending' AND e.status = 'active'"#
    )
    .fetch_one(pool)
    .await?)
}
