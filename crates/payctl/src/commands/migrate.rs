//! `payctl migrate`: brings the payments database to the schema of this version, and creates it if
//! it is not there. Safe to repeat and to run twice at once. The mock switch migrates its own. It is run as the owner of
//! everything; the services themselves connect with the rights of `payments_service`.

use std::io;
use std::time::Duration;

use anyhow::Context as _;
use sqlx::migrate::{Migrate as _, MigrateDatabase as _, Migrator};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Postgres};
use tokio::time::{Instant, sleep, timeout_at};

use crate::database::{DatabaseArgs, place};
use crate::out::Out;
use crate::outcome::Outcome;

/// Pause between two attempts to reach a server that is starting.
const PAUSE: Duration = Duration::from_millis(200);

/// What lives in the payments database, in the order it is applied.
const SCHEMAS: [(&str, &Migrator); 2] =
    [("payment-ledger", &payment_ledger::MIGRATOR), ("idempotency", &idempotency::MIGRATOR)];

/// Create the payments database if it is missing and apply the migrations
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Seconds to wait for PostgreSQL
    #[arg(long, visible_alias = "wait", value_name = "SECONDS", default_value_t = 30)]
    wait_s: u64,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let mut connection = open(&args, out).await?;
    // One at a time, so that what is reported as applied was applied here.
    connection.lock().await.context("the migrations could not be locked")?;
    for (schema, migrator) in SCHEMAS {
        let applied = apply(migrator, &mut connection)
            .await
            .with_context(|| format!("the migrations of {schema} failed"))?;
        for migration in &applied {
            out.line(format_args!("{schema}: applied {migration}"))?;
        }
        if applied.is_empty() {
            out.line(format_args!("{schema}: up to date"))?;
        }
    }
    payment_ledger::access::service_role::hand_over_idempotency_tables(&mut connection)
        .await
        .context("the tables that are the services' own could not be handed over")?;
    connection.close().await.context("the connection could not be closed")?;
    Ok(Outcome::Done)
}

/// Connects, waiting for the server and creating the database.
async fn open(args: &Args, out: &mut Out<'_>) -> anyhow::Result<PgConnection> {
    let options = args.database.options()?;
    let deadline = Instant::now() + Duration::from_secs(args.wait_s);
    let mut last = None;
    loop {
        match timeout_at(deadline, options.connect()).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) if is_missing(&error) => {
                if create(args.database.url()).await? {
                    out.line(format_args!("created {}", place(&options)))?;
                }
            }
            Ok(Err(error)) if is_starting(&error) && Instant::now() + PAUSE < deadline => {
                last = Some(error);
                sleep(PAUSE).await;
            }
            Ok(Err(error)) => return Err(unreachable(args, &place(&options), Some(error))),
            Err(_) => return Err(unreachable(args, &place(&options), last)),
        }
    }
}

fn unreachable(args: &Args, place: &str, cause: Option<sqlx::Error>) -> anyhow::Error {
    let waited = args.wait_s;
    let message = format!("{place} cannot be opened (--database-url, waited at most {waited} s)");
    match cause {
        Some(cause) => anyhow::Error::new(cause).context(message),
        None => anyhow::anyhow!("{message}: no answer"),
    }
}

/// Creates the database. Returns false when somebody else did so meanwhile.
async fn create(url: &str) -> anyhow::Result<bool> {
    match Postgres::create_database(url).await {
        Ok(()) => Ok(true),
        Err(error) if has_code(&error, &["42P04", "23505"]) => Ok(false),
        Err(error) => Err(error).context("the database is not there and could not be created"),
    }
}

/// Applies what is missing and names it.
async fn apply(migrator: &Migrator, connection: &mut PgConnection) -> anyhow::Result<Vec<String>> {
    connection.ensure_migrations_table(&migrator.table_name).await?;
    let known = connection.list_applied_migrations(&migrator.table_name).await?;
    let missing = migrator
        .iter()
        .filter(|migration| known.iter().all(|applied| applied.version != migration.version))
        .map(|migration| format!("{:04} {}", migration.version, migration.description))
        .collect();
    migrator.run(connection).await?;
    Ok(missing)
}

/// The server is there, the database is not (`invalid_catalog_name`).
fn is_missing(error: &sqlx::Error) -> bool {
    has_code(error, &["3D000"])
}

/// May be gone in a moment: no server yet, `cannot_connect_now`, `too_many_connections`.
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
