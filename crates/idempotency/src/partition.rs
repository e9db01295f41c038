//! The day partitions: made days ahead and by whoever finds one missing, dropped when nothing in them is live.
//!
//! A day is a date in UTC by the database's clock. A new one is made beside the table and then attached, and an old
//! one detached concurrently before it is dropped: neither ever makes a claim wait.

use std::str::FromStr as _;

use jiff::civil::Date;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

use crate::IdempotencyError;

/// Days that are made ahead, besides today.
const DAYS_AHEAD: i32 = 3;
/// Days after which a partition may be dropped at the earliest. A transaction that began before midnight writes into
/// the day before.
const DAYS_KEPT_MIN: i32 = 2;
/// Serialises whoever makes and drops days.
const KEEPER_LOCK: i64 = 0x6964_656d_6461_7973;
/// Longest wait for a lock on the table, so that claims never queue behind this work.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '500ms'";

/// What was done to the days.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Days {
    /// Made.
    pub made: u32,
    /// Dropped.
    pub dropped: u32,
}

/// Makes today's partition and those of the next days where they are missing. Any number of processes may call it.
///
/// # Errors
/// [`IdempotencyError::Database`].
pub async fn make_days(pool: &PgPool) -> Result<u32, IdempotencyError> {
    let mut connection = pool.acquire().await?;
    let mut tx = connection.begin().await?;
    sqlx::query!("SELECT pg_advisory_xact_lock($1)", KEEPER_LOCK).fetch_one(&mut *tx).await?;
    let missing = sqlx::query!(
        r#"SELECT to_char(day, 'YYYYMMDD') AS "name!", day::date::text AS "first!", (day::date + 1)::text AS "next!"
           FROM generate_series((now() AT TIME ZONE 'UTC')::date, (now() AT TIME ZONE 'UTC')::date + $1::int, interval '1 day')
                AS day
           WHERE to_regclass('idempotency_keys_' || to_char(day, 'YYYYMMDD')) IS NULL"#,
        DAYS_AHEAD,
    )
    .fetch_all(&mut *tx)
    .await?;
    for day in &missing {
        let (name, first, next) = (&day.name, &day.first, &day.next);
        // Digits and dashes that the database wrote itself.
        let make = format!("CREATE TABLE idempotency_keys_{name} (LIKE idempotency_keys INCLUDING ALL)");
        sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut *tx).await?;
        let attach = format!(
            "ALTER TABLE idempotency_keys ATTACH PARTITION idempotency_keys_{name} FOR VALUES FROM ('{first}') TO ('{next}')"
        );
        sqlx::raw_sql(AssertSqlSafe(attach)).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(u32::try_from(missing.len()).unwrap_or(u32::MAX))
}

/// Makes the days ahead and drops those that are over and in which nothing is live. Whoever finds another at it leaves
/// it to that one.
///
/// # Errors
/// [`IdempotencyError::Database`]; what was begun is finished by the next call.
pub async fn keep_days(pool: &PgPool) -> Result<Days, IdempotencyError> {
    let made = make_days(pool).await?;
    // Detaching concurrently cannot be part of a transaction, so the lock is the session's; the connection is closed
    // afterwards, and takes the lock and the setting with it.
    let mut connection = pool.acquire().await?.detach();
    let dropped = drop_days(&mut connection).await;
    connection.close().await?;
    Ok(Days { made, dropped: dropped? })
}

async fn drop_days(connection: &mut PgConnection) -> Result<u32, IdempotencyError> {
    sqlx::raw_sql(LOCK_TIMEOUT).execute(&mut *connection).await?;
    let alone = sqlx::query_scalar!(r#"SELECT pg_try_advisory_lock($1) AS "alone!""#, KEEPER_LOCK)
        .fetch_one(&mut *connection)
        .await?;
    if !alone {
        return Ok(0);
    }
    let mut dropped = 0;
    for day in days(connection).await? {
        let name = day.name();
        if day.attached == Attached::Pending {
            run(connection, format!("ALTER TABLE idempotency_keys DETACH PARTITION {name} FINALIZE")).await?;
        }
        if day.attached == Attached::Yes {
            if !day.is_over || is_live(connection, &name).await? {
                continue;
            }
            run(connection, format!("ALTER TABLE idempotency_keys DETACH PARTITION {name} CONCURRENTLY"))
                .await?;
        }
        if day.is_over {
            run(connection, format!("DROP TABLE {name}")).await?;
            tracing::info!(partition = name, "a day of idempotency keys is dropped");
            dropped += 1;
        }
    }
    Ok(dropped)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attached {
    Yes,
    /// A process died while it detached it.
    Pending,
    No,
}

struct Day {
    date: Date,
    attached: Attached,
    is_over: bool,
}

impl Day {
    fn name(&self) -> String {
        format!("idempotency_keys_{}", self.date.strftime("%Y%m%d"))
    }
}

/// Every day that has a table, oldest first, also those that are no longer part of the whole.
async fn days(connection: &mut PgConnection) -> Result<Vec<Day>, IdempotencyError> {
    let rows = sqlx::query!(
        r#"SELECT substr(c.relname, 18) AS "day!", i.inhdetachpending AS "pending?",
                  to_date(substr(c.relname, 18), 'YYYYMMDD') <= (now() AT TIME ZONE 'UTC')::date - $1::int AS "is_over!"
           FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
           WHERE c.relkind = 'r' AND c.relname ~ '^idempotency_keys_[0-9]{8}$'
             AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'idempotency_keys'::regclass)
           ORDER BY c.relname"#,
        DAYS_KEPT_MIN,
    )
    .fetch_all(&mut *connection)
    .await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let date = Date::from_str(&row.day).ok()?;
            let attached = match row.pending {
                Some(false) => Attached::Yes,
                Some(true) => Attached::Pending,
                None => Attached::No,
            };
            Some(Day { date, attached, is_over: row.is_over })
        })
        .collect())
}

/// Whether a key in it is still kept. Nothing is written into a day that is over, so the answer stays true.
async fn is_live(connection: &mut PgConnection, name: &str) -> Result<bool, IdempotencyError> {
    let sql = format!("SELECT EXISTS (SELECT FROM {name} WHERE expires_at > now())");
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await?)
}

async fn run(connection: &mut PgConnection, sql: String) -> Result<(), IdempotencyError> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}
