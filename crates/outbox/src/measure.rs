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
    /// Messages that a consumer could not take in, that were parked, and that it has not taken in since.
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
                  (SELECT count(*) FROM parked_deliveries d
                   WHERE NOT EXISTS (SELECT FROM processed_events p
                                     WHERE p.consumer = d.consumer AND p.event_id = d.event_id)) AS "parked_deliveries!"
           FROM outbox WHERE published_at IS NULL"#
    )
    .fetch_one(pool)
    .await?)
}

/// Published events that are looked at: the newest. A consumer that is further behind shows as one that has none of them.
const NEWEST: i64 = 10_000;

/// How far a consumer is behind what was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Published events that it neither took in nor parked, among the newest 10,000.
    pub events: i64,
    /// How long ago the oldest of them was published, in milliseconds; 0 when there is none.
    pub oldest_ms: i64,
}

/// Measures a consumer by what it marked as taken in, whether it runs or not.
///
/// # Errors
/// [`OutboxError`].
pub async fn behind(pool: &PgPool, consumer: &str) -> Result<Behind, OutboxError> {
    Ok(sqlx::query_as!(
        Behind,
        r#"SELECT count(*) AS "events!",
                  (coalesce(extract(epoch FROM clock_timestamp() - min(published_at)), 0) * 1000)::bigint AS "oldest_ms!"
           FROM (SELECT event_id, published_at FROM outbox WHERE published_at IS NOT NULL
                 ORDER BY published_at DESC LIMIT $2) AS newest
           WHERE NOT EXISTS (SELECT FROM processed_events p WHERE p.consumer = $1 AND p.event_id = newest.event_id)
             AND NOT EXISTS (SELECT FROM parked_deliveries d WHERE d.consumer = $1 AND d.event_id = newest.event_id)"#,
        consumer,
        NEWEST,
    )
    .fetch_one(pool)
    .await?)
}
