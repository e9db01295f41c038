//! The lag of a consumer: published events that it has not consumed.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use postgres_kit::Pool;

use crate::OutboxError;

/// Published events that one statement reads.
const WINDOW: i64 = 10_000;
/// Upper bound of statements of one measurement; the next measurement continues.
const WINDOWS_MAX: usize = 100;
/// Age at which every published event is visible, in seconds: longer than a statement that marks events as published.
const VISIBLE_AFTER_S: u32 = 60;

/// Lag of a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerLag {
    /// Published events that the consumer neither consumed nor parked; counted in a window of 10,000 events that contains the
    /// oldest one.
    pub unconsumed: i64,
    /// Time since the oldest unconsumed event was published, in milliseconds; 0 if every event is consumed.
    pub oldest_ms: i64,
}

/// Measures the lag of a consumer by its marks in the database, whether the consumer runs or not. The monitor reads the
/// published events once, oldest first, and never advances past an unconsumed event: an event that the broker lost counts as
/// lag until it is republished and consumed, however many events were published since.
#[derive(Debug)]
pub struct ConsumerLagMonitor {
    consumer: &'static str,
    /// All events published before this time were consumed or parked.
    consumed_until: Option<Timestamp>,
}

impl ConsumerLagMonitor {
    /// A monitor that starts at the oldest stored event.
    #[must_use]
    pub fn new(consumer: &'static str) -> Self {
        Self { consumer, consumed_until: None }
    }

    /// The name of the consumer.
    #[must_use]
    pub fn consumer(&self) -> &'static str {
        self.consumer
    }

    /// Measures the lag. The first measurement of a long table may end before the newest event; the next one continues.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub async fn measure(&mut self, pool: &Pool) -> Result<ConsumerLag, OutboxError> {
        let mut from = self.consumed_until;
        for _ in 0..WINDOWS_MAX {
            let window = self.read_window(pool, from).await?;
            if window.consumed_until > self.consumed_until {
                self.consumed_until = window.consumed_until;
            }
            let is_last = window.events < WINDOW || window.last <= from;
            if window.lag.unconsumed > 0 || is_last {
                return Ok(window.lag);
            }
            from = window.last;
        }
        Ok(ConsumerLag::default())
    }

    /// Reads a window of the events that were published at `from` or later.
    async fn read_window(&self, pool: &Pool, from: Option<Timestamp>) -> Result<WindowRow, OutboxError> {
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
            i64::from(VISIBLE_AFTER_S),
        )
        .fetch_one(pool)
        .await?;
        Ok(WindowRow {
            events: row.events,
            last: row.last.map(jiff_sqlx::Timestamp::to_jiff),
            consumed_until: row.all_before.map(jiff_sqlx::Timestamp::to_jiff),
            lag: ConsumerLag { unconsumed: row.missed, oldest_ms: row.oldest_ms },
        })
    }
}

/// A window of published events.
struct WindowRow {
    /// Events in the window.
    events: i64,
    /// When the last event of the window was published.
    last: Option<Timestamp>,
    /// All events of the window published before this time were consumed or parked.
    consumed_until: Option<Timestamp>,
    lag: ConsumerLag,
}
