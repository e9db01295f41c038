//! Day partitions: created before their day begins, or by a claim if today's is missing; dropped once all their keys have expired.
//!
//! A day is a UTC date by the database's clock. A database function creates partitions, with the rights of the table's owner: a process that
//! claims keys needs no more than the table's rows. An old partition is detached concurrently before it is dropped, which makes no claim
//! wait.

use std::str::FromStr as _;

use jiff::civil::Date;
use postgres_kit::{Connection, Pool};
use sqlx::AssertSqlSafe;

use crate::IdempotencyError;

/// Smallest age of a dropped partition in days: a transaction that began before midnight writes into the previous day.
const AGE_MIN_DAYS: i32 = 2;
/// Advisory lock of processes that create and drop partitions; the function that creates them takes it, too.
const MAINTENANCE_LOCK: i64 = 0x6964_656d_6461_7973;
/// The session's limits: it waits for a lock on the table so long at most, so that claims never queue behind maintenance; and the server ends
/// it, and frees the maintenance lock, where the process has become silent.
const SESSION: &str = "SET lock_timeout = '500ms'; SET idle_session_timeout = '15s'";

/// Partitions created and dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionChanges {
    /// Number of partitions created.
    pub created: u32,
    /// Number of partitions dropped.
    pub dropped: u32,
}

/// Creates the missing partitions of today and the next three days. Any number of processes may call it.
///
/// # Errors
/// [`IdempotencyError::Database`].
pub async fn create_partitions(pool: &Pool) -> Result<u32, IdempotencyError> {
    let created = sqlx::query_scalar!(r#"SELECT idempotency.create_partitions() AS "created!""#);
    Ok(u32::try_from(created.fetch_one(pool).await?).unwrap_or(u32::MAX))
}

/// Creates the partitions of today and the next days, and drops old ones without live keys. If another process holds the maintenance lock, nothing is
/// dropped.
///
/// # Errors
/// [`IdempotencyError::Database`]; the next call finishes what this one began.
pub async fn maintain_partitions(pool: &Pool) -> Result<PartitionChanges, IdempotencyError> {
    let created = create_partitions(pool).await?;
    // DETACH CONCURRENTLY is not allowed in a transaction, so the lock is held by the session; closing the connection
    // releases the lock and ends the limits.
    let mut connection = pool.acquire().await?;
    connection.close_on_drop();
    let dropped = drop_partitions(&mut connection).await?;
    Ok(PartitionChanges { created, dropped })
}

async fn drop_partitions(connection: &mut Connection) -> Result<u32, IdempotencyError> {
    sqlx::raw_sql(SESSION).execute(&mut *connection).await?;
    let is_locked =
        sqlx::query_scalar!(r#"SELECT pg_try_advisory_lock($1) AS "is_locked!""#, MAINTENANCE_LOCK)
            .fetch_one(&mut *connection)
            .await?;
    if !is_locked {
        return Ok(0);
    }
    let mut dropped = 0;
    for partition in partitions(connection).await? {
        let name = partition.name();
        if partition.attachment == Attachment::DetachPending {
            run(connection, format!("ALTER TABLE idempotency.keys DETACH PARTITION {name} FINALIZE")).await?;
        }
        if partition.attachment == Attachment::Attached {
            if !partition.is_old || has_live_keys(connection, &name).await? {
                continue;
            }
            run(connection, format!("ALTER TABLE idempotency.keys DETACH PARTITION {name} CONCURRENTLY"))
                .await?;
        }
        if partition.is_old {
            run(connection, format!("DROP TABLE {name}")).await?;
            tracing::info!(
                partition = name,
                "partition maintenance dropped an expired day partition of the table idempotency.keys"
            );
            dropped += 1;
        }
    }
    Ok(dropped)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attachment {
    Attached,
    /// A process died while it detached the partition.
    DetachPending,
    Detached,
}

struct Partition {
    date: Date,
    attachment: Attachment,
    /// Whether the partition is at least [`AGE_MIN_DAYS`] old.
    is_old: bool,
}

impl Partition {
    fn name(&self) -> String {
        format!("idempotency.keys_{}", self.date.strftime("%Y%m%d"))
    }
}

/// Every partition, oldest first, including tables that are already detached.
async fn partitions(connection: &mut Connection) -> Result<Vec<Partition>, IdempotencyError> {
    let rows = sqlx::query!(
        r#"SELECT substr(c.relname, 6) AS "day!", i.inhdetachpending AS "pending?",
                  to_date(substr(c.relname, 6), 'YYYYMMDD') <= (now() AT TIME ZONE 'UTC')::date - $1::int AS "is_old!"
           FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
           WHERE c.relkind = 'r' AND c.relname ~ '^keys_[0-9]{8}$'
             AND c.relnamespace = 'idempotency'::regnamespace
           ORDER BY c.relname"#,
        AGE_MIN_DAYS,
    )
    .fetch_all(&mut *connection)
    .await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let date = Date::from_str(&row.day).ok()?;
            let attachment = match row.pending {
                Some(false) => Attachment::Attached,
                Some(true) => Attachment::DetachPending,
                None => Attachment::Detached,
            };
            Some(Partition { date, attachment, is_old: row.is_old })
        })
        .collect())
}

/// Whether a key in the partition has not expired. Nothing is written into an old partition, so the result stays valid.
async fn has_live_keys(connection: &mut Connection, name: &str) -> Result<bool, IdempotencyError> {
    let sql = format!("SELECT EXISTS (SELECT FROM {name} WHERE expires_at > now())");
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await?)
}

async fn run(connection: &mut Connection, sql: String) -> Result<(), IdempotencyError> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}
