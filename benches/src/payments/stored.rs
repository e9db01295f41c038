//! Stored payments: settled ones of earlier hours, with their journal, timeline, operations, submissions, callbacks, events and
//! idempotency keys, so that a payment is measured beside as many.
//!
//! The rows are copies of a payment that the system itself has made during the warm-up, with ids of their own. They are written
//! without triggers, and the copied seals have positions before the chain: `payctl ledger verify` would report them.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};

use super::processes::Process;
use crate::common::print_now;

/// Payments in one transaction.
const BATCH: usize = 50_000;
/// Transactions at once.
const SESSIONS: usize = 2;

/// The copies of one table's rows: its columns, and the expressions where a copy differs from the row of the payment `$1`. Copies are
/// numbered by `n`; `at` is a moment of the last hours.
struct Table {
    name: &'static str,
    /// Columns that the database assigns or that are not copied.
    omitted: &'static [&'static str],
    changed: &'static [(&'static str, &'static str)],
    /// The rows of the payment `$1`, with its transaction id `$2`.
    rows: &'static str,
}

/// A text column whose ids become the copy's.
macro_rules! ids {
    ($column:literal) => {
        ($column, concat!("replace(replace(t.", $column, ", $1, pay), $2, tx)"))
    };
}

const TABLES: [Table; 15] = [
    Table {
        name: "payments",
        omitted: &[],
        changed: &[
            ids!("payment_id"),
            ids!("tx_id"),
            ids!("workflow_id"),
            ("source_account", "'DE-BENCH-' || n % 64"),
            ("run_id", "gen_random_uuid()::text"),
            ("accepted_at", "at"),
            ("valid_until", "at + interval '1 minute'"),
            ("started_at", "at"),
            ("first_attempt_at", "at"),
            ("submit_deadline", "at + interval '1 minute'"),
            ("updated_at", "at"),
            ("ended_at", "at"),
        ],
        rows: "t.payment_id = $1",
    },
    Table {
        name: "holds",
        omitted: &[],
        changed: &[
            ids!("payment_id"),
            ("account_id", "'DE-BENCH-' || n % 64"),
            ("opened_at", "at"),
            ("closed_at", "at"),
        ],
        rows: "t.payment_id = $1",
    },
    Table {
        name: "operations",
        omitted: &[],
        changed: &[ids!("operation_key"), ids!("payment_id"), ("recorded_at", "at")],
        rows: "t.payment_id = $1",
    },
    Table {
        name: "journal",
        omitted: &["entry_id"],
        changed: &[
            ids!("operation_key"),
            ids!("payment_id"),
            (
                "debit_account",
                "CASE WHEN t.kind = 'reserve' THEN 'DE-BENCH-' || n % 64 ELSE t.debit_account END",
            ),
            ("posted_at", "at"),
        ],
        rows: "t.payment_id = $1",
    },
    Table {
        name: "timeline",
        omitted: &["entry_id"],
        changed: &[ids!("payment_id"), ("happened_at", "at")],
        rows: "t.payment_id = $1",
    },
    Table {
        name: "submissions",
        omitted: &[],
        changed: &[ids!("payment_id"), ("recorded_at", "at"), ("answered_at", "at")],
        rows: "t.payment_id = $1",
    },
    Table {
        name: "switch_callbacks",
        omitted: &[],
        changed: &[
            ("event_id", "'stored-' || md5(t.event_id || n)"),
            ids!("payment_id"),
            ids!("reference"),
            ("received_at", "at"),
        ],
        rows: "t.payment_id = $1",
    },
    Table {
        name: "inbox",
        omitted: &["inbox_id"],
        changed: &[
            ids!("payment_id"),
            ("event_id", "'stored-' || md5(t.event_id || n)"),
            ("received_at", "at"),
            ("next_delivery_at", "at"),
            ("delivered_at", "at"),
        ],
        rows: "t.payment_id = $1",
    },
    Table {
        name: "outbox",
        omitted: &["position"],
        changed: &[
            ids!("event_id"),
            ids!("subject_key"),
            ("appended_at", "at"),
            ("published_at", "at"),
            ("next_attempt_at", "at"),
        ],
        rows: "t.subject_key = $1",
    },
    Table { name: "outbox_keys", omitted: &[], changed: &[ids!("subject_key")], rows: "t.subject_key = $1" },
    Table {
        name: "processed_events",
        omitted: &[],
        changed: &[ids!("event_id"), ("processed_at", "at")],
        rows: "t.event_id LIKE $1 || ':%'",
    },
    Table {
        name: "consumer_positions",
        omitted: &[],
        changed: &[ids!("subject_key"), ("updated_at", "at")],
        rows: "t.subject_key = $1",
    },
    Table {
        name: "notifications",
        omitted: &["notification_id"],
        changed: &[ids!("payment_id"), ids!("event_id"), ("notified_at", "at")],
        rows: "t.payment_id = $1",
    },
    Table {
        name: "idempotency.keys",
        omitted: &[],
        changed: &[
            ("scope_id", "gen_random_uuid()"),
            ("key", "'stored-' || n"),
            ("claim_token", "gen_random_uuid()"),
        ],
        // Any key will do: none is repeated. The lengths only use the parameters, which every statement has.
        rows: "t.scope_id = (SELECT scope_id FROM idempotency.keys ORDER BY scope_id LIMIT 1) AND length($1) + length($2) > 0",
    },
    Table {
        name: "journal_seals",
        omitted: &[],
        changed: &[("position", "-2 * n - t.position % 2"), ("entry_id", "-2 * n - t.position % 2")],
        rows: "t.position IN (1, 2) AND length($1) + length($2) > 0",
    },
];

/// Stores `payments` copies of a settled payment, with progress, and returns the size of the database in bytes. The bank's processes
/// stand still meanwhile: until the end the tables have no index to read by.
pub(super) async fn store(pool: &PgPool, payments: u64, processes: &[Process]) -> anyhow::Result<i64> {
    let (id, tx): (String, String) = sqlx::query_as(
        "SELECT payment_id, tx_id FROM payments WHERE state = 'settled' ORDER BY accepted_at DESC LIMIT 1",
    )
    .fetch_optional(pool)
    .await?
    .context("no payment has settled that could be copied")?;
    let mut statements = Vec::new();
    for table in &TABLES {
        statements.push(table.insert(pool).await?);
    }
    let stopped = Stopped::stop(processes)?;
    suspend_indexes(pool).await?;
    let copying = copying_pool(pool).await?;
    let (copying, statements, ids) = (&copying, &statements, &(id, tx));
    let stored = AtomicU64::new(0);
    let stored = &stored;
    stream::iter((0..payments).step_by(BATCH))
        .map(anyhow::Ok)
        .try_for_each_concurrent(SESSIONS, |first| async move {
            let last = (first + BATCH as u64).min(payments);
            copy(copying, statements, ids, first + 1, last).await?;
            let stored = stored.fetch_add(last - first, Ordering::Relaxed) + last - first;
            print_now(&format!("stored {stored} of {payments} payments\n"))
        })
        .await?;
    build_indexes(pool).await?;
    drop(stopped);
    Ok(sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(pool).await?)
}

/// A pool of the sessions that copy.
async fn copying_pool(pool: &PgPool) -> anyhow::Result<PgPool> {
    let sessions = u32::try_from(SESSIONS)?;
    Ok(PgPoolOptions::new()
        .max_connections(sessions)
        .connect_with(pool.connect_options().as_ref().clone())
        .await?)
}

/// Copies the payment of these ids, the copies `first` to `last`, in one transaction.
async fn copy(
    pool: &PgPool,
    statements: &[String],
    (id, tx): &(String, String),
    first: u64,
    last: u64,
) -> anyhow::Result<()> {
    let mut copies = pool.begin().await?;
    sqlx::query("SET LOCAL session_replication_role = replica").execute(&mut *copies).await?;
    for (table, statement) in TABLES.iter().zip(statements) {
        let copied = sqlx::query(AssertSqlSafe(statement.clone()))
            .bind(id)
            .bind(tx)
            .bind(i64::try_from(first)?)
            .bind(i64::try_from(last)?)
            .execute(&mut *copies)
            .await
            .with_context(|| format!("the rows of {} could not be copied", table.name))?;
        ensure!(copied.rows_affected() > 0, "the payment {id} has no row in {} to copy", table.name);
    }
    Ok(copies.commit().await?)
}

/// Takes the indexes of the tables out of use: to maintain them row by row, at random places, takes many times as long as to build
/// them at the end.
async fn suspend_indexes(pool: &PgPool) -> anyhow::Result<()> {
    let tables: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
    sqlx::query(
        "UPDATE pg_index SET indisready = false, indisvalid = false
         FROM unnest($1::text[]) AS tables (name), pg_partition_tree(tables.name::regclass) AS part
         WHERE indrelid = part.relid AND part.isleaf",
    )
    .bind(&tables)
    .execute(pool)
    .await
    .context("the indexes could not be suspended")?;
    Ok(())
}

async fn build_indexes(pool: &PgPool) -> anyhow::Result<()> {
    let mut session = pool.acquire().await?;
    sqlx::query("SET maintenance_work_mem = '1GB'").execute(&mut *session).await?;
    for table in &TABLES {
        print_now(&format!("building the indexes of {}\n", table.name))?;
        sqlx::query(AssertSqlSafe(format!("REINDEX TABLE {}", table.name))).execute(&mut *session).await?;
    }
    sqlx::query("RESET maintenance_work_mem").execute(&mut *session).await?;
    Ok(())
}

/// The bank's processes while they stand still; they continue when this is dropped.
struct Stopped(Vec<u32>);

impl Stopped {
    fn stop(processes: &[Process]) -> anyhow::Result<Self> {
        let of_the_bank =
            |process: &&Process| ["worker", "webhook", "relay", "notifier"].contains(&process.name.as_str());
        let stopped = Self(processes.iter().filter(of_the_bank).map(|process| process.pid).collect());
        stopped.signal("-STOP")?;
        Ok(stopped)
    }

    fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let status = Command::new("kill").arg(signal).args(self.0.iter().map(u32::to_string)).status()?;
        ensure!(status.success(), "kill {signal}: {status}");
        Ok(())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Err(error) = self.signal("-CONT") {
            eprintln!("the processes still stand still: {error}");
        }
    }
}

/// The position of the last event.
pub(super) async fn last_position(pool: &PgPool) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar("SELECT coalesce(max(position), 0) FROM outbox").fetch_one(pool).await?)
}

impl Table {
    async fn insert(&self, pool: &PgPool) -> anyhow::Result<String> {
        let columns: Vec<String> = sqlx::query_scalar(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        )
        .bind(self.name)
        .fetch_all(pool)
        .await?;
        for (column, _) in self.changed {
            ensure!(columns.iter().any(|name| name == column), "{} has no column {column}", self.name);
        }
        let copied: Vec<&String> =
            columns.iter().filter(|column| !self.omitted.contains(&column.as_str())).collect();
        let values: Vec<String> = copied
            .iter()
            .map(|column| {
                let changed = self.changed.iter().find(|(name, _)| name == *column);
                changed.map_or_else(|| format!("t.{column}"), |(_, expression)| (*expression).to_owned())
            })
            .collect();
        let names: Vec<&str> = copied.iter().map(|column| column.as_str()).collect();
        Ok(format!(
            "INSERT INTO {table} ({names})
             SELECT {values}
             FROM (SELECT n, clock_timestamp() - random() * interval '6 hours' AS at, 'pay_' || md5('stored payment ' || n) AS pay,
                          left(md5('stored transaction ' || n) || md5(n::text), length($2)) AS tx
                   FROM generate_series($3::bigint, $4::bigint) AS n OFFSET 0) AS copies
             CROSS JOIN (SELECT * FROM {table} t WHERE {rows}) AS t",
            table = self.name,
            names = names.join(", "),
            values = values.join(", "),
            rows = self.rows,
        ))
    }
}
