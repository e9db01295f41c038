//! Has told again what the broker has lost: the rows are the truth, and the broker is a way.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::PgPool;

use crate::OutboxError;
use crate::measure::{SEEN_AFTER_S, WINDOW, WINDOWS_MAX};
use crate::nats::{Broker, BrokerError};

/// Why it is not known what the broker has lost. What was marked until then is published again; the next look finds the rest.
#[derive(Debug, thiserror::Error)]
pub enum MendError {
    /// The database.
    #[error(transparent)]
    Database(#[from] OutboxError),
    /// The broker.
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mended {
    /// Events that are published again.
    pub events: u64,
    /// Whether it came to the newest event. Otherwise there is no reason to wait before the next look.
    pub is_whole: bool,
}

/// A published event that a consumer has neither taken in nor parked.
#[derive(Debug)]
pub(crate) struct Missed {
    /// Its row.
    position: i64,
    /// Which.
    pub(crate) event_id: String,
    /// Of which key.
    pub(crate) key: String,
    /// Its number in the broker's stream; none where a former release published it.
    pub(crate) stream_sequence: Option<i64>,
    published_at: Timestamp,
}

/// How a mender works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MenderOptions {
    /// What was published less long ago is left alone: it may be under way. Default 5 s.
    pub after: Duration,
    /// Published events that are looked at in one statement, at least 2. Default 10,000.
    pub window: i64,
}

impl Default for MenderOptions {
    fn default() -> Self {
        Self { after: Duration::from_secs(5), window: WINDOW }
    }
}

/// Has published again what one consumer was not told and never would be. Goes through the published events from the oldest that
/// the consumer had not taken in the last time to the newest, and begins anew: one that stays, hides no other.
#[derive(Debug)]
pub struct Mender {
    consumer: &'static str,
    options: MenderOptions,
    /// All that was published before was taken in or parked.
    from: Option<Timestamp>,
    /// The passage that is under way.
    passage: Option<Passage>,
}

#[derive(Clone, Copy, Debug)]
struct Passage {
    /// By the database's clock.
    began: Timestamp,
    /// All that was published before was looked at.
    at: Option<Timestamp>,
    /// The first that was not taken in.
    first: Option<Timestamp>,
}

impl Mender {
    /// One that has looked at nothing yet.
    #[must_use]
    pub fn new(consumer: &'static str, options: MenderOptions) -> Self {
        Self { consumer, options, from: None, passage: None }
    }

    /// One look.
    ///
    /// # Errors
    /// [`MendError`].
    pub async fn mend(&mut self, pool: &PgPool, broker: &Broker) -> Result<Mended, MendError> {
        let mut events = 0;
        for _ in 0..WINDOWS_MAX {
            let mut passage = match self.passage {
                Some(passage) => passage,
                None => Passage { began: now(pool).await?, at: self.from, first: None },
            };
            // First the broker: what it was told of before, was marked before, and is seen to be.
            let standing = broker.standing(self.consumer).await?;
            let (missed, last) = self.look(pool, passage.at).await?;
            passage.first = passage.first.or(missed.first().map(|event| event.published_at));
            let lost = standing.lost(missed).await?;
            events += publish_again(pool, &lost).await?;
            if let Some(last) = last.filter(|last| Some(*last) > passage.at) {
                passage.at = Some(last);
                self.passage = Some(passage);
                continue;
            }
            self.passage = None;
            let unseen = Duration::from_secs(SEEN_AFTER_S.into()).saturating_add(self.options.after);
            let seen = passage.began.checked_sub(unseen).unwrap_or(Timestamp::MIN);
            self.from = Some(passage.first.map_or(seen, |first| first.min(seen)));
            return Ok(Mended { events, is_whole: true });
        }
        Ok(Mended { events, is_whole: false })
    }

    /// What was missed among the next events; and where those end, if there are more.
    async fn look(
        &self,
        pool: &PgPool,
        at: Option<Timestamp>,
    ) -> Result<(Vec<Missed>, Option<Timestamp>), OutboxError> {
        let rows = sqlx::query!(
            r#"WITH next AS MATERIALIZED (
                   SELECT position, event_id, subject_key, stream_sequence, published_at FROM outbox
                   WHERE published_at IS NOT NULL AND published_at >= coalesce($2, '-infinity'::timestamptz)
                     AND published_at <= clock_timestamp() - $4 * interval '1 second'
                   ORDER BY published_at LIMIT $3)
               SELECT missed.position AS "position?", missed.event_id AS "event_id?", missed.subject_key AS "key?",
                      missed.stream_sequence, missed.published_at AS "published_at?", whole.last
               FROM (SELECT CASE WHEN count(*) = $3 THEN max(published_at) END AS last FROM next) AS whole
               LEFT JOIN (SELECT * FROM next
                          WHERE NOT EXISTS (SELECT FROM processed_events p
                                            WHERE p.consumer = $1 AND p.event_id = next.event_id)
                            AND NOT EXISTS (SELECT FROM parked_deliveries d
                                            WHERE d.consumer = $1 AND d.event_id = next.event_id)) AS missed ON true
               ORDER BY missed.published_at, missed.position"#,
            self.consumer,
            at.map(ToSqlx::to_sqlx) as Option<jiff_sqlx::Timestamp>,
            self.options.window.max(2),
            self.options.after.as_secs_f64(),
        )
        .fetch_all(pool)
        .await?;
        let last = rows.first().and_then(|row| row.last).map(jiff_sqlx::Timestamp::to_jiff);
        let missed = rows.into_iter().filter_map(|row| {
            Some(Missed {
                position: row.position?,
                event_id: row.event_id?,
                key: row.key?,
                stream_sequence: row.stream_sequence,
                published_at: row.published_at?.to_jiff(),
            })
        });
        Ok((missed.collect(), last))
    }
}

async fn now(pool: &PgPool) -> Result<Timestamp, OutboxError> {
    let now = sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#).fetch_one(pool).await?;
    Ok(now.to_jiff())
}

/// Marks events as not published. What somebody else has published again meanwhile has another number and is left alone.
async fn publish_again(pool: &PgPool, lost: &[Missed]) -> Result<u64, OutboxError> {
    if lost.is_empty() {
        return Ok(0);
    }
    let positions: Vec<i64> = lost.iter().map(|event| event.position).collect();
    let sequences: Vec<Option<i64>> = lost.iter().map(|event| event.stream_sequence).collect();
    let rows = sqlx::query!(
        "UPDATE outbox o SET published_at = NULL, rejections = 0, next_attempt_at = clock_timestamp()
         FROM unnest($1::bigint[], $2::bigint[]) AS lost (position, stream_sequence)
         WHERE o.position = lost.position AND o.published_at IS NOT NULL
           AND o.stream_sequence IS NOT DISTINCT FROM lost.stream_sequence",
        &positions,
        &sequences as &[Option<i64>],
    )
    .execute(pool)
    .await?;
    Ok(rows.rows_affected())
}
