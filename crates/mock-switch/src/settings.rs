//! The settings that can change while the switch runs: its shape and its clock.
//!
//! A change is stored as a row, so that it survives a restart; the process keeps a copy, because every request needs it.
//! Without a row the configuration applies.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::types::Json;
use tokio::sync::watch;

use crate::book::submit::{DEADLINE_PASSED, DUPLICATE_REFERENCE};
use crate::clock;
use crate::id_pattern::IdPattern;
use crate::plan::NOT_DECIDED_IN_TIME;
use crate::status::TransferStatus;

/// The capabilities of a switch. An absent field has its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// Answers queries; otherwise 501. Default true.
    pub query: bool,
    /// Deduplicates submits by reference; otherwise each submit is a transfer. Default true.
    pub dedup: bool,
    /// A cancel of an unknown reference leaves a tombstone; otherwise `NOT_FOUND`. Default true.
    pub tombstone: bool,
    /// Refuses a submit after its deadline; otherwise ignores the deadline. Default true.
    pub deadline: bool,
    /// Cancels; otherwise `CANNOT_CANCEL`. Default true.
    pub cancel: bool,
    /// Recalls; otherwise `CANNOT_RECALL`. Default true.
    pub recall: bool,
    /// A recall is answered `IN_PROCESS`, and by the receiving bank later, which `/admin` decides for it. Default false: at once.
    pub recall_takes_time: bool,
    /// Takes one recall of a transfer; refuses any further one, whether or not its answer arrived. Default false.
    pub one_recall: bool,
    /// Sends callbacks; otherwise none is recorded. Default true.
    pub callback: bool,
    /// Has a statement; otherwise 501. Default true.
    pub statement: bool,
    /// Has references and idempotency keys. Otherwise it ignores both: every submit is a transfer, only the switch's own
    /// id identifies it, and no callback is sent. Default true.
    pub keys: bool,
    /// Lists the transfers to a creditor; otherwise 501. Default true.
    pub listing: bool,
    /// The mock switch repeats its first answer to a cancel with the same idempotency key even if that answer was indefinite, such as
    /// `NOT_FOUND`.
    /// Default false.
    pub sticky_answers: bool,
    /// Retention of references, in seconds. Default a day.
    pub retention_s: u32,
    /// Refuses a submit whose reference it has already, as a duplicate; only without `dedup`. Default false.
    pub refuses_duplicates: bool,
    /// The codes in its rejects. Default none.
    pub reject_codes: RejectCodes,
    /// Refuses a query of a transfer that it received less than this many milliseconds before. Default 0: none.
    pub query_after_ms: u32,
    /// Refuses further queries of one transfer after this many. Default 0: none.
    pub queries_max: u32,
    /// Rejects by itself a transfer that is pending this many milliseconds after its receipt. Default 0: none.
    pub decides_within_ms: u32,
    /// The statement is complete only up to the last multiple of this many seconds, like the file of a settlement cycle; entries
    /// that ended later are not shown. Default 0: complete up to now.
    pub statement_cycle_s: u32,
    /// Lists each entry of the statement twice, each time with a cursor of its own. Default false.
    pub statement_repeats: bool,
    /// The pattern that the reference of a submit must have; otherwise 400. Default any.
    pub id_pattern: IdPattern,
}

/// The reason codes in the rejects of a switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectCodes {
    /// None: a reject has words only.
    #[default]
    None,
    /// External codes of ISO 20022, as SEPA, FedNow and RTP use them.
    Iso,
    /// Those of SPI, in which Pix differs.
    Spi,
}

impl RejectCodes {
    /// The code of a transfer's reason; `None` if the transfer is not rejected, or rejects have no codes.
    pub(crate) fn of(self, status: TransferStatus, reason: Option<&str>) -> Option<&'static str> {
        reason.filter(|_| status == TransferStatus::Rejected).and_then(|reason| self.code(reason))
    }

    /// The code of a reject's reason; `None` if rejects have none.
    pub(crate) fn code(self, reason: &str) -> Option<&'static str> {
        let (expired, duplicate) = match self {
            Self::None => return None,
            Self::Iso => ("TM01", "AM05"),
            Self::Spi => ("AB03", "AM05"),
        };
        Some(match reason {
            DEADLINE_PASSED | NOT_DECIDED_IN_TIME => expired,
            DUPLICATE_REFERENCE => duplicate,
            // Every table of codes has it: the account is blocked.
            _ => "AC06",
        })
    }
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
            recall_takes_time: false,
            one_recall: false,
            callback: true,
            statement: true,
            keys: true,
            listing: true,
            sticky_answers: false,
            retention_s: 86_400,
            refuses_duplicates: false,
            reject_codes: RejectCodes::None,
            query_after_ms: 0,
            queries_max: 0,
            decides_within_ms: 0,
            statement_cycle_s: 0,
            statement_repeats: false,
            id_pattern: IdPattern::Any,
        }
    }
}

impl Shape {
    /// Whether callbacks are sent. A switch without references cannot name the transfer in a callback.
    pub(crate) fn calls_back(&self) -> bool {
        self.callback && self.keys
    }
}

/// A transfer as the switch shows it, with the code of its reject.
#[derive(Debug, Serialize)]
pub(crate) struct Coded<T> {
    #[serde(flatten)]
    pub(crate) transfer: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason_code: Option<&'static str>,
}

/// The shape and the clock offset at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CurrentSettings {
    pub(crate) shape: Shape,
    pub(crate) clock_offset_ms: i64,
}

impl CurrentSettings {
    /// Now, on the switch's clock.
    pub(crate) fn now(&self) -> Timestamp {
        clock::now(self.clock_offset_ms)
    }

    /// The time up to which the statement is complete: now, or the end of the last cycle.
    pub(crate) fn statement_complete_until(&self) -> Timestamp {
        let now = self.now();
        match i64::from(self.shape.statement_cycle_s).checked_mul(1_000).filter(|cycle_ms| *cycle_ms > 0) {
            Some(cycle_ms) => clock::earlier(now, now.as_millisecond().rem_euclid(cycle_ms)),
            None => now,
        }
    }

    /// References received before this time are forgotten.
    pub(crate) fn remembered_since(&self) -> Timestamp {
        clock::earlier(self.now(), i64::from(self.shape.retention_s) * 1000)
    }
}

/// The settings of this process.
#[derive(Debug)]
pub(crate) struct Settings {
    configured: CurrentSettings,
    current: watch::Sender<CurrentSettings>,
}

impl Settings {
    /// Reads the stored changes; a setting without one has its configured value.
    pub(crate) async fn load(pool: &PgPool, configured: CurrentSettings) -> Result<Self, sqlx::Error> {
        let mut current = configured;
        if let Some(shape) = read(pool, "shape").await? {
            current.shape = shape;
        }
        if let Some(offset_ms) = read(pool, "clock_offset_ms").await? {
            current.clock_offset_ms = offset_ms;
        }
        Ok(Self { configured, current: watch::Sender::new(current) })
    }

    /// The current settings.
    pub(crate) fn current(&self) -> CurrentSettings {
        *self.current.borrow()
    }

    /// Changes the shape; `None` restores the configured one.
    pub(crate) async fn set_shape(&self, pool: &PgPool, shape: Option<Shape>) -> Result<(), sqlx::Error> {
        write(pool, "shape", shape).await?;
        self.current.send_modify(|current| {
            current.shape = shape.unwrap_or(self.configured.shape);
        });
        Ok(())
    }

    /// Shifts the clock by this many milliseconds; `None` restores the configured shift.
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
