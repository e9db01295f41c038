//! Writes an event in the transaction that it reports.

use postgres_kit::Connection;
use serde_json::Value;

use crate::OutboxError;

/// A new event.
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    /// See [`crate::Event::event_id`].
    pub event_id: &'a str,
    /// Kind of event, of letters, digits and `_`; it becomes a part of the message's subject.
    pub kind: &'a str,
    /// See [`crate::Event::version`].
    pub version: i32,
    /// See [`crate::Event::key`].
    pub key: &'a str,
    /// See [`crate::Event::body`].
    pub body: &'a Value,
    /// Position of the event in its distributed trace, a W3C `traceparent`: the span that publishes it is a child of it.
    pub trace_parent: Option<&'a str>,
}

/// Writes the event in the caller's transaction and returns its sequence number among the events of its key; `None` if an
/// event with this id is stored already, and nothing is written.
///
/// The key's row stays locked until the transaction ends, so transactions that write events of one key run one after the
/// other. If two transactions write the same id at the same time, the second one fails.
///
/// # Errors
/// [`OutboxError`]: the transaction must not be committed.
pub async fn append(tx: &mut Connection, event: NewEvent<'_>) -> Result<Option<i64>, OutboxError> {
    Ok(sqlx::query_scalar!(
        "WITH next AS (
             INSERT INTO outbox_keys AS k (subject_key, last_sequence)
             SELECT $4, 1 WHERE NOT EXISTS (SELECT FROM outbox WHERE event_id = $1)
             ON CONFLICT (subject_key) DO UPDATE SET last_sequence = k.last_sequence + 1
             RETURNING last_sequence)
         INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, trace_parent)
         SELECT $1, $2, $3, $4, last_sequence, $5, $6 FROM next
         RETURNING sequence",
        event.event_id,
        event.kind,
        event.version,
        event.key,
        event.body,
        event.trace_parent,
    )
    .fetch_optional(tx)
    .await?)
}

/// As [`append`], for several events with one statement. Their keys must differ. The caller's other locks must order the
/// transactions that write events of the same keys: the keys are locked in no particular order.
///
/// # Errors
/// [`OutboxError`]: the transaction must not be committed.
pub async fn append_all(tx: &mut Connection, events: &[NewEvent<'_>]) -> Result<(), OutboxError> {
    if events.is_empty() {
        return Ok(());
    }
    let text = |column: fn(&NewEvent<'_>) -> String| -> Vec<String> { events.iter().map(column).collect() };
    let versions: Vec<i32> = events.iter().map(|event| event.version).collect();
    let bodies: Vec<Value> = events.iter().map(|event| event.body.clone()).collect();
    let trace_parents: Vec<Option<&str>> = events.iter().map(|event| event.trace_parent).collect();
    sqlx::query!(
        "WITH new AS (
             SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::jsonb[], $6::text[])
                           AS n (event_id, kind, version, subject_key, body, trace_parent)),
         next AS (
             INSERT INTO outbox_keys AS k (subject_key, last_sequence)
             SELECT subject_key, 1 FROM new
             -- ANY: a plan from when the table was small would read all of it.
             WHERE event_id <> ALL (ARRAY (SELECT o.event_id FROM outbox o WHERE o.event_id = ANY ($1)))
             ON CONFLICT (subject_key) DO UPDATE SET last_sequence = k.last_sequence + 1
             RETURNING subject_key, last_sequence)
         INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, trace_parent)
         SELECT event_id, kind, version, subject_key, last_sequence, body, trace_parent FROM new JOIN next USING (subject_key)",
        &text(|event| event.event_id.to_owned()),
        &text(|event| event.kind.to_owned()),
        &versions,
        &text(|event| event.key.to_owned()),
        &bodies,
        &trace_parents as &[Option<&str>],
    )
    .execute(tx)
    .await?;
    Ok(())
}
