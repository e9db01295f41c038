//! `payctl migrate`: creates the payments database if it is missing and applies this version's migrations.
//! Idempotent, and safe to run twice at once. Runs as the database's owner; each service connects with the rights
//! of its own role. The mock switch migrates its own database.

use std::io;
use std::time::Duration;

use anyhow::Context as _;
use sqlx::migrate::{Migrate as _, MigrateDatabase as _, Migrator};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Postgres};
use tokio::time::{Instant, sleep, timeout_at};

use crate::database::{DatabaseArgs, describe};
use crate::outcome::CommandOutcome;
use crate::output::Output;

/// Pause between two connection attempts while the server starts.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The schemas of the payments database, in the order of their migration.
const SCHEMAS: [(&str, &Migrator); 2] =
    [("payment-ledger", &payment_ledger::MIGRATOR), ("idempotency", &idempotency::MIGRATOR)];

/// Create the payments database if it is missing and apply the migrations; safe to repeat
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Longest time to wait for PostgreSQL to start, in seconds
    #[arg(long, visible_alias = "wait", value_name = "SECONDS", default_value_t = 30)]
    wait_s: u64,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let mut connection = open(&args, out).await?;
    // One process at a time, so that every migration reported as applied was applied by this process.
    connection
        .lock()
        .await
        .context("payctl could not take the database lock for migrations; run payctl migrate again")?;
    for (schema, migrator) in SCHEMAS {
        let applied = apply(migrator, &mut connection).await.with_context(|| {
            format!(
                "the migration of the {schema} tables failed; correct the cause and run payctl migrate again"
            )
        })?;
        for migration in &applied {
            out.write_line(format_args!("{schema}: applied {migration}"))?;
        }
        if applied.is_empty() {
            out.write_line(format_args!("{schema}: up to date"))?;
        }
    }
    payment_ledger::access::service_roles::hand_over_idempotency_schema(&mut connection).await.context(
        "the ownership of the schema of idempotency keys could not be changed; run payctl migrate again",
    )?;
    connection.close().await.context("the connection to the database could not be closed")?;
    Ok(CommandOutcome::Success)
}

/// Connects to the payments database, after waiting for the server and creating the database.
async fn open(args: &Args, out: &mut Output<'_>) -> anyhow::Result<PgConnection> {
    let options = args.database.options()?;
    let deadline = Instant::now() + Duration::from_secs(args.wait_s);
    let mut last = None;
    loop {
        match timeout_at(deadline, options.connect()).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) if is_missing(&error) => {
                if create(args.database.url()).await? {
                    out.write_line(format_args!("created {}", describe(&options)))?;
                }
            }
            Ok(Err(error)) if is_starting(&error) && Instant::now() + RETRY_INTERVAL < deadline => {
                last = Some(error);
                sleep(RETRY_INTERVAL).await;
            }
            Ok(Err(error)) => return Err(unreachable(args, &describe(&options), Some(error))),
            Err(_) => return Err(unreachable(args, &describe(&options), last)),
        }
    }
}

fn unreachable(args: &Args, database: &str, cause: Option<sqlx::Error>) -> anyhow::Error {
    let waited = args.wait_s;
    let message = format!(
        "{database} cannot be opened within {waited} s; check --database-url and that PostgreSQL runs"
    );
    match cause {
        Some(cause) => anyhow::Error::new(cause).context(message),
        None => anyhow::anyhow!("{message}: no answer"),
    }
}

/// Creates the database. Returns false if another process created it meanwhile.
async fn create(url: &str) -> anyhow::Result<bool> {
    match Postgres::create_database(url).await {
        Ok(()) => Ok(true),
        Err(error) if has_code(&error, &["42P04", "23505"]) => Ok(false),
        Err(error) => Err(error).context("the database is missing and could not be created"),
    }
}

/// Applies the missing migrations and returns their names.
async fn apply(migrator: &Migrator, connection: &mut PgConnection) -> anyhow::Result<Vec<String>> {
    connection.ensure_migrations_table(&migrator.table_name).await?;
    let applied = connection.list_applied_migrations(&migrator.table_name).await?;
    let missing = migrator
        .iter()
        .filter(|migration| applied.iter().all(|applied| applied.version != migration.version))
        .map(|migration| format!("{:04} {}", migration.version, migration.description))
        .collect();
    migrator.run(connection).await?;
    Ok(missing)
}

/// Whether the error means that the server has no such database (`invalid_catalog_name`).
fn is_missing(error: &sqlx::Error) -> bool {
    has_code(error, &["3D000"])
}

/// Whether the error is transient: no server yet, `cannot_connect_now`, `too_many_connections`.
fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() != io::ErrorKind::PermissionDenied,
        error => has_code(error, &["57P03", "53300"]),
    }
}

fn has_code(error: &sqlx::Error, codes: &[&str]) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| codes.contains(&code.as_ref()))
}
