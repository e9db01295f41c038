//! What can be changed while the switch runs: its shape and its clock.
//!
//! A change is a row, so that it survives a restart; the process keeps a copy,
//! because every request needs it. Without a row the configuration counts.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::types::Json;
use tokio::sync::watch;

use crate::clock;

/// What a switch is able to do. Leaving a field out means the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// Answers queries; otherwise 501. Default true.
    pub query: bool,
    /// Deduplicates submits by reference; otherwise each one pays. Default true.
    pub dedup: bool,
    /// A cancel of an unknown reference leaves a tombstone; otherwise `NOT_FOUND`. Default true.
    pub tombstone: bool,
    /// Refuses a submit after its deadline; otherwise ignores it. Default true.
    pub deadline: bool,
    /// Cancels; otherwise `CANNOT_CANCEL`. Default true.
    pub cancel: bool,
    /// Recalls; otherwise `CANNOT_RECALL`. Default true.
    pub recall: bool,
    /// Tells of ends by callback; otherwise none is made. Default true.
    pub callback: bool,
    /// Has a statement; otherwise 501. Default true.
    pub statement: bool,
    /// Knows references and idempotency keys. Otherwise they mean nothing: every submit is a transfer of
    /// its own, known by the switch's own id alone, and nothing is told by callback. Default true.
    pub keys: bool,
    /// Lists the transfers to a creditor; otherwise 501. Default true.
    pub listing: bool,
    /// Repeats its first answer to a cancel under the same key even if it bound nobody, such as
    /// `NOT_FOUND`. Default false.
    pub sticky_answers: bool,
    /// For how long a reference is remembered, in seconds. Default a day.
    pub retention_s: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            query: true,
            dedup: true,
            tombstone: true,
            deadline: true,
            cancel: true,
            recall: true,
            callback: true,
            statement: true,
            keys: true,
            listing: true,
            sticky_answers: false,
            retention_s: 86_400,
        }
    }
}

impl Shape {
    /// Whether ends are told: a callback that names no reference would tell nobody anything.
    pub(crate) fn calls_back(&self) -> bool {
        self.callback && self.keys
    }
}

/// Both settings at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Current {
    pub(crate) shape: Shape,
    pub(crate) clock_offset_ms: i64,
}

impl Current {
    /// Now, on the switch's clock.
    pub(crate) fn now(&self) -> Timestamp {
        clock::now(self.clock_offset_ms)
    }

    /// References that came before this moment are forgotten.
    pub(crate) fn remembered_since(&self) -> Timestamp {
        clock::earlier(self.now(), i64::from(self.shape.retention_s) * 1000)
    }
}

/// The settings, shared by everything in the process.
#[derive(Debug)]
pub(crate) struct Settings {
    configured: Current,
    current: watch::Sender<Current>,
}

impl Settings {
    /// Reads what was changed earlier over what is configured.
    pub(crate) async fn load(pool: &PgPool, configured: Current) -> Result<Self, sqlx::Error> {
        let mut current = configured;
        if let Some(shape) = read(pool, "shape").await? {
            current.shape = shape;
        }
        if let Some(offset_ms) = read(pool, "clock_offset_ms").await? {
            current.clock_offset_ms = offset_ms;
        }
        Ok(Self { configured, current: watch::Sender::new(current) })
    }

    /// The settings as they are now.
    pub(crate) fn current(&self) -> Current {
        *self.current.borrow()
    }

    /// Changes the shape; `None` goes back to the configured one.
    pub(crate) async fn set_shape(&self, pool: &PgPool, shape: Option<Shape>) -> Result<(), sqlx::Error> {
        write(pool, "shape", shape).await?;
        self.current.send_modify(|current| {
            current.shape = shape.unwrap_or(self.configured.shape);
        });
        Ok(())
    }

    /// Shifts the clock by this many milliseconds; `None` goes back to the configured shift.
    pub(crate) async fn set_clock(&self, pool: &PgPool, offset_ms: Option<i64>) -> Result<(), sqlx::Error> {
        write(pool, "clock_offset_ms", offset_ms).await?;
        self.current.send_modify(|current| {
            current.clock_offset_ms = offset_ms.unwrap_or(self.configured.clock_offset_ms);
        });
        Ok(())
    }
}

async fn read<T>(pool: &PgPool, name: &str) -> Result<Option<T>, sqlx::Error>
where
    T: for<'de> Deserialize<'de>,
{
    let value =
        sqlx::query_scalar!("SELECT value FROM settings WHERE name = $1", name).fetch_optional(pool).await?;
    value.map(serde_json::from_value).transpose().map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

async fn write<T: Serialize>(pool: &PgPool, name: &str, value: Option<T>) -> Result<(), sqlx::Error> {
    let Some(value) = value else {
        sqlx::query!("DELETE FROM settings WHERE name = $1", name).execute(pool).await?;
        return Ok(());
    };
    sqlx::query!(
        "INSERT INTO settings (name, value) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name,
        Json(value) as _,
    )
    .execute(pool)
    .await?;
    Ok(())
}
