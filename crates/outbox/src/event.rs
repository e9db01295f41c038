//! An event, as a row and as a message.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event. Its JSON is the message; readers must ignore unknown fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Unique for ever; consumers deduplicate by it.
    pub event_id: String,
    /// Kind of event.
    pub kind: String,
    /// Schema version of the body, from 1. Fields may be added within a version.
    pub version: i32,
    /// The subject of the event; events of one key are published in order.
    pub key: String,
    /// Sequence number among the events of its key, from 1, without a gap.
    pub sequence: i64,
    /// When the event was written, by the database's clock.
    pub appended_at: Timestamp,
    /// The payload, by kind and version.
    pub body: Value,
}
