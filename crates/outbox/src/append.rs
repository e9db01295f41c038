//! An event is written in the transaction of what it tells of.

use serde_json::Value;
use sqlx::PgConnection;

use crate::OutboxError;

/// An event that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    /// See [`crate::Event::event_id`].
    pub event_id: &'a str,
    /// Letters, digits and `_`: it becomes a part of the message's subject.
    pub kind: &'a str,
    /// From 1.
    pub version: i32,
    /// What is to be told in order.
    pub key: &'a str,
    /// In the form of kind and version.
    pub body: &'a Value,
}

/// Writes the event in the caller's transaction and gives its number among those of its key; none where an event of this id
/// is kept already, and nothing is written then.
///
/// The key's row stays locked until the transaction ends, so writers of one key come one after the other. Two who write the
/// same id at once are the caller's to keep apart: the second fails.
///
/// # Errors
/// [`OutboxError`]: the transaction must not be committed.
pub async fn append(tx: &mut PgConnection, event: NewEvent<'_>) -> Result<Option<i64>, OutboxError> {
    Ok(sqlx::query_scalar!(
        "WITH next AS (
             INSERT INTO outbox_keys AS k (subject_key, last_sequence)
             SELECT $4, 1 WHERE NOT EXISTS (SELECT FROM outbox WHERE event_id = $1)
             ON CONFLICT (subject_key) DO UPDATE SET last_sequence = k.last_sequence + 1
             RETURNING last_sequence)
         INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body)
         SELECT $1, $2, $3, $4, last_sequence, $5 FROM next
         RETURNING sequence",
        event.event_id,
        event.kind,
        event.version,
        event.key,
        event.body,
    )
    .fetch_optional(tx)
    .await?)
}
