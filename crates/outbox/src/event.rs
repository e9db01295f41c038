//! An event, as it is stored and as it is told.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What happened. Its JSON is the message; fields that a reader does not know are to be ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Unique for ever: who takes it in twice, sees so by this.
    pub event_id: String,
    /// What kind of thing happened.
    pub kind: String,
    /// Version of the body's form, from 1. Another version is another form; fields may be added within one.
    pub version: i32,
    /// Events of one key are published in order.
    pub key: String,
    /// Its place among the events of its key, from 1, without a gap.
    pub sequence: i64,
    /// When it was written, by the database's clock.
    pub appended_at: Timestamp,
    /// What happened, in the form of its kind and version.
    pub body: Value,
}
