//! The rows that the relay reads and marks.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::PgConnection;
use trace_kit::TraceParent;

use crate::{Event, OutboxError};

/// An event that is due to be published.
pub(super) struct DueRow {
    pub(super) position: i64,
    pub(super) rejections: i32,
    pub(super) event: Event,
    pub(super) trace_parent: Option<TraceParent>,
}

/// The rows of each key, the keys in the order of their first events.
pub(super) fn by_key(due: Vec<DueRow>) -> Vec<(String, Vec<DueRow>)> {
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut keys: Vec<(String, Vec<DueRow>)> = Vec::new();
    for row in due {
        let key = &row.event.key;
        match index.get(key).and_then(|n| keys.get_mut(*n)) {
            Some((_, rows)) => rows.push(row),
            None => {
                index.insert(key.clone(), keys.len());
                keys.push((key.clone(), vec![row]));
            }
        }
    }
    keys
}

/// Events to publish now, in the order of their positions: without those of the keys in flight, without the events behind a
/// parked event of their key, and without those behind an event whose next attempt is later. Only rejected events are looked up
/// for this, in an index of their own, so one read costs the same however many events wait.
pub(super) async fn due(
    session: &mut PgConnection,
    batch: i64,
    in_flight: &[String],
) -> Result<Vec<DueRow>, OutboxError> {
    let rows = sqlx::query!(
        "SELECT o.position, o.event_id, o.kind, o.version, o.subject_key, o.sequence, o.body, o.appended_at, o.rejections,
                o.trace_parent
         FROM outbox o
         WHERE o.published_at IS NULL AND o.parked_at IS NULL AND (o.rejections = 0 OR o.next_attempt_at <= now())
           AND o.subject_key <> ALL ($2)
           AND NOT EXISTS (
               SELECT FROM outbox e
               WHERE e.subject_key = o.subject_key AND e.sequence < o.sequence AND e.rejections > 0
                 AND (e.parked_at IS NOT NULL OR e.next_attempt_at > now()))
         ORDER BY o.position LIMIT $1",
        batch.max(1),
        in_flight,
    )
    .fetch_all(session)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| DueRow {
            position: row.position,
            rejections: row.rejections,
            trace_parent: row.trace_parent.as_deref().and_then(TraceParent::parse),
            event: Event {
                event_id: row.event_id,
                kind: row.kind,
                version: row.version,
                key: row.subject_key,
                sequence: row.sequence,
                appended_at: row.appended_at.to_jiff(),
                body: row.body,
            },
        })
        .collect())
}

pub(super) async fn mark_published(session: &mut PgConnection, positions: &[i64]) -> Result<(), OutboxError> {
    if positions.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "UPDATE outbox SET published_at = clock_timestamp(), rejections = 0 WHERE position = ANY($1)",
        positions
    )
    .execute(session)
    .await?;
    Ok(())
}

pub(super) async fn mark_rejected(
    session: &mut PgConnection,
    position: i64,
    rejections: i32,
    reason: &str,
    delay: Duration,
    is_parked: bool,
) -> Result<(), OutboxError> {
    sqlx::query!(
        "UPDATE outbox
         SET rejections = $2, rejection = $3, next_attempt_at = clock_timestamp() + $4 * interval '1 second',
             parked_at = CASE WHEN $5 THEN clock_timestamp() END
         WHERE position = $1",
        position,
        rejections,
        reason,
        delay.as_secs_f64(),
        is_parked,
    )
    .execute(session)
    .await?;
    Ok(())
}
