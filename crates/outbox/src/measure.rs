//! The numbers of the gauges: unpublished and parked events.

use postgres_kit::Pool;

use crate::OutboxError;

/// Numbers of unpublished and parked events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxBacklog {
    /// Unpublished events, without parked ones.
    pub unpublished: i64,
    /// Age of the oldest unpublished event, in milliseconds; 0 if none is unpublished.
    pub oldest_ms: i64,
    /// Events that the broker rejected until the relay parked them.
    pub parked: i64,
    /// Messages that a consumer parked, has not processed since, and no operator discarded.
    pub parked_deliveries: i64,
}

/// Counts unpublished and parked events, by the database's clock.
///
/// # Errors
/// [`OutboxError`].
pub async fn measure(pool: &Pool) -> Result<OutboxBacklog, OutboxError> {
    Ok(sqlx::query_as!(
        OutboxBacklog,
        // The count reads the index alone, because the backlog may be long; parked events have an index of their own.
        r#"SELECT (SELECT count(*) FROM outbox WHERE published_at IS NULL) - parked.count AS "unpublished!",
                  (coalesce(extract(epoch FROM clock_timestamp()
                                               - (SELECT appended_at FROM outbox
                                                  WHERE published_at IS NULL AND parked_at IS NULL ORDER BY position LIMIT 1)), 0)
                      * 1000)::bigint AS "oldest_ms!",
                  parked.count AS "parked!",
                  (SELECT count(*) FROM parked_deliveries d
                   WHERE d.discarded_at IS NULL
                     AND NOT EXISTS (SELECT FROM processed_events p
                                     WHERE p.consumer = d.consumer AND p.event_id = d.event_id)) AS "parked_deliveries!"
           FROM (SELECT count(*) FROM outbox WHERE rejections > 0 AND parked_at IS NOT NULL) AS parked"#
    )
    .fetch_one(pool)
    .await?)
}
