//! How much waits to be published, and since when.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
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
    /// Messages that a consumer could not take in, that were parked, and that it has not taken in since and nobody discarded.
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
                   WHERE d.discarded_at IS NULL
                     AND NOT EXISTS (SELECT FROM processed_events p
                                     WHERE p.consumer = d.consumer AND p.event_id = d.event_id)) AS "parked_deliveries!"
           FROM outbox WHERE published_at IS NULL"#
    )
    .fetch_one(pool)
    .await?)
}

/// Published events that are looked at in one statement.
const WINDOW: i64 = 10_000;
/// Statements in one measurement, so that it ends; the next one goes on.
const WINDOWS_MAX: usize = 100;
/// What was published so long ago is all to be seen: no statement that marks events as published takes as long.
const SEEN_AFTER_S: u32 = 60;

/// How far a consumer is behind what was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Published events that it neither took in nor parked, among 10,000 from the oldest of them on.
    pub events: i64,
    /// How long ago the oldest of them was published, in milliseconds; 0 when there is none.
    pub oldest_ms: i64,
}

/// Watches over a consumer by what it marked as taken in, whether it runs or not. Goes through all published events once, the
/// oldest first, and never past one that was not taken in: what a consumer has missed is shown until it is told again, however
/// much was published since.
#[derive(Debug)]
pub struct Watch {
    consumer: &'static str,
    /// All that was published before was taken in or parked.
    from: Option<Timestamp>,
}

impl Watch {
    /// A watch that begins with the oldest event that is kept.
    #[must_use]
    pub fn new(consumer: &'static str) -> Self {
        Self { consumer, from: None }
    }

    /// Whom it watches over.
    #[must_use]
    pub fn consumer(&self) -> &'static str {
        self.consumer
    }

    /// Measures how far the consumer is behind. The first measurement of a long table may not come to its end; the next one
    /// goes on.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub async fn measure(&mut self, pool: &PgPool) -> Result<Behind, OutboxError> {
        let mut from = self.from;
        for _ in 0..WINDOWS_MAX {
            let seen = self.look(pool, from).await?;
            if seen.all_before > self.from {
                self.from = seen.all_before;
            }
            let is_last = seen.events < WINDOW || seen.last <= from;
            if seen.behind.events > 0 || is_last {
                return Ok(seen.behind);
            }
            from = seen.last;
        }
        Ok(Behind::default())
    }

    /// Looks at a window of what was published at `from` and after it.
    async fn look(&self, pool: &PgPool, from: Option<Timestamp>) -> Result<Seen, OutboxError> {
        let row = sqlx::query!(
            r#"SELECT count(*) AS "events!", max(published_at) AS last,
                      count(*) FILTER (WHERE is_missed) AS "missed!",
                      (coalesce(extract(epoch FROM clock_timestamp() - min(published_at) FILTER (WHERE is_missed)), 0)
                          * 1000)::bigint AS "oldest_ms!",
                      least(min(published_at) FILTER (WHERE is_missed), max(published_at),
                            clock_timestamp() - $4::bigint * interval '1 second') AS all_before
               FROM (SELECT published_at,
                            NOT EXISTS (SELECT FROM processed_events p WHERE p.consumer = $1 AND p.event_id = next.event_id)
                            AND NOT EXISTS (SELECT FROM parked_deliveries d WHERE d.consumer = $1 AND d.event_id = next.event_id)
                            AS is_missed
                     FROM (SELECT event_id, published_at FROM outbox
                           WHERE published_at IS NOT NULL AND published_at >= coalesce($2, '-infinity'::timestamptz)
                           ORDER BY published_at LIMIT $3) AS next) AS seen"#,
            self.consumer,
            from.map(ToSqlx::to_sqlx) as Option<jiff_sqlx::Timestamp>,
            WINDOW,
            i64::from(SEEN_AFTER_S),
        )
        .fetch_one(pool)
        .await?;
        Ok(Seen {
            events: row.events,
            last: row.last.map(jiff_sqlx::Timestamp::to_jiff),
            all_before: row.all_before.map(jiff_sqlx::Timestamp::to_jiff),
            behind: Behind { events: row.missed, oldest_ms: row.oldest_ms },
        })
    }
}

/// What a look at a window found.
struct Seen {
    /// Events in it.
    events: i64,
    /// When the last of them was published.
    last: Option<Timestamp>,
    /// All that was published before was taken in or parked, if all was before the window.
    all_before: Option<Timestamp>,
    behind: Behind,
}
