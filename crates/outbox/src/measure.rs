//! How much waits to be published, and since when.

use sqlx::PgPool;

use crate::OutboxError;

/// The numbers that gauges show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Events that are not published, the parked ones not counted.
    pub unpublished: i64,
    /// Age of the oldest of them, in milliseconds; 0 when there is none.
    pub oldest_ms: i64,
    /// Events that were refused until they were parked.
    pub parked: i64,
    /// Messages that a consumer could not take in and that were parked.
    pub parked_deliveries: i64,
}

/// Measures, by the database's clock.
///
/// # Errors
/// [`OutboxError`].
pub async fn measure(pool: &PgPool) -> Result<Measured, OutboxError> {
    Ok(sqlx::query_as!(
        Measured,
        r#"SELECT count(*) FILTER (WHERE parked_at IS NULL) AS "unpublished!",
                  (coalesce(extract(epoch FROM clock_timestamp() - min(appended_at) FILTER (WHERE parked_at IS NULL)), 0)
                      * 1000)::bigint AS "oldest_ms!",
                  count(parked_at) AS "parked!",
                  (SELECT count(*) FROM parked_deliveries) AS "parked_deliveries!"
           FROM outbox WHERE published_at IS NULL"#
    )
    .fetch_one(pool)
    .await?)
}
