//! One database per test for the bank and one for its switch, cloned from migrated templates.

use anyhow::Context as _;
use payment_ledger::access::service_roles::{SERVICE_ROLES, hand_over_idempotency_schema};
use sha2::{Digest as _, Sha256};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, PgPool};
use std::net::SocketAddr;
use std::str::FromStr as _;
use uuid::Uuid;

/// Key of the advisory lock for creating a template, once for all test processes.
const TEMPLATE_LOCK: i64 = 7_301_200_301;

/// Name of the template of an owner: with other migrations it is another database, because not every cluster is new.
fn template(owner: &str, migrators: &[&Migrator]) -> String {
    let mut hash = Sha256::new();
    for migrator in migrators {
        migrator.iter().for_each(|migration| hash.update(&migration.checksum));
    }
    let digits: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{owner}_template_{digits}")
}

/// The login of a process under test; it has the rights of the process's role only.
fn login_of(role: &str) -> String {
    format!("{role}_login")
}

/// The database of one test.
#[derive(Clone, Debug)]
pub struct Database {
    /// URL of the same database for its owner.
    pub owner_url: String,
    /// Pool of eight connections for the test's own queries, as the owner.
    pub pool: PgPool,
}

impl Database {
    /// URL for a process under test, which has the rights of its own role; `process` is its name.
    ///
    /// # Errors
    /// If no process of this name uses the database.
    pub fn url_of(&self, process: &str) -> anyhow::Result<String> {
        self.url_behind(process, None)
    }

    /// The same with the address (`host:port`) of a proxy in place of the server's.
    ///
    /// # Errors
    /// As [`Database::url_of`], or if the address is not one.
    pub fn url_behind(&self, process: &str, proxy: Option<&str>) -> anyhow::Result<String> {
        let role = process.replace('-', "_");
        anyhow::ensure!(
            SERVICE_ROLES.contains(&role.as_str()),
            "the process {process} has no role in the database"
        );
        let url = text_of(&PgConnectOptions::from_str(&self.owner_url)?.username(&login_of(&role)));
        match proxy {
            Some(proxy) => at(&url, proxy),
            None => Ok(url),
        }
    }

    /// Sets a server setting for the sessions that are opened from now on.
    ///
    /// # Errors
    /// If PostgreSQL refuses the setting.
    pub async fn set(&self, setting: &str, value: &str) -> anyhow::Result<()> {
        let name: String = sqlx::query_scalar("SELECT current_database()").fetch_one(&self.pool).await?;
        let statement = format!("ALTER DATABASE \"{name}\" SET {setting} = '{value}'");
        sqlx::query(AssertSqlSafe(statement)).execute(&self.pool).await?;
        Ok(())
    }
}

/// Creates the database of a bank.
///
/// # Errors
/// If PostgreSQL cannot be reached or refuses a statement.
pub async fn create_for_bank(maintenance_url: &str) -> anyhow::Result<Database> {
    let template = template("payments", &[&payment_ledger::MIGRATOR, &idempotency::MIGRATOR]);
    let (options, name) = clone(maintenance_url, &template, "test", fill_for_bank).await?;
    let owner = options.database(&name);
    let owner_url = text_of(&owner);
    let pool = PgPoolOptions::new().max_connections(8).connect_with(owner).await?;
    Ok(Database { owner_url, pool })
}

/// The URL with the address (`host:port`) of a proxy in place of the server's.
pub(crate) fn at(url: &str, proxy: &str) -> anyhow::Result<String> {
    let proxy = SocketAddr::from_str(proxy)?;
    let options = PgConnectOptions::from_str(url)?.host(&proxy.ip().to_string()).port(proxy.port());
    Ok(text_of(&options))
}

/// The URL of these options. sqlx 0.9 writes "file: " before the name of a certificate's file, and does not read that.
fn text_of(options: &PgConnectOptions) -> String {
    options.to_url_lossy().as_str().replace("=file%3A+", "=")
}

/// Creates the database of a mock switch; returns its URL.
///
/// # Errors
/// If PostgreSQL cannot be reached or refuses a statement.
pub(crate) async fn create_for_switch(maintenance_url: &str) -> anyhow::Result<String> {
    let template = template("switch", &[&mock_switch::MIGRATOR]);
    let (_, name) = clone(maintenance_url, &template, "switch", fill_for_switch).await?;
    Ok(url_of(maintenance_url, &name))
}

/// Clones a template, which is created and filled first if it does not exist; returns how to connect to the server, and the name of the copy.
async fn clone(
    maintenance_url: &str,
    template: &str,
    owner: &str,
    fill: impl AsyncFnOnce(&mut PgConnection) -> anyhow::Result<()>,
) -> anyhow::Result<(PgConnectOptions, String)> {
    let options = PgConnectOptions::from_str(maintenance_url)?;
    let mut maintenance =
        options.connect().await.context("PostgreSQL does not answer at TEST_DATABASE_URL")?;
    sqlx::query("SELECT pg_advisory_lock($1)").bind(TEMPLATE_LOCK).execute(&mut maintenance).await?;
    let exists: Option<i32> = sqlx::query_scalar("SELECT 1 FROM pg_database WHERE datname = $1")
        .bind(template)
        .fetch_optional(&mut maintenance)
        .await?;
    if exists.is_none() {
        // Created under another name and renamed at the end, so that an existing template is always complete.
        let unfinished = format!("{template}_{}", Uuid::new_v4().simple());
        create(&mut maintenance, &unfinished, None).await?;
        let mut connection = options.clone().database(&unfinished).connect().await?;
        fill(&mut connection).await?;
        connection.close().await?;
        let rename = format!("ALTER DATABASE {unfinished} RENAME TO {template}");
        sqlx::query(AssertSqlSafe(rename)).execute(&mut maintenance).await?;
    }
    let name = format!("{owner}_{}", Uuid::new_v4().simple());
    create(&mut maintenance, &name, Some(template)).await?;
    maintenance.close().await?;
    Ok((options, name))
}

async fn fill_for_bank(template: &mut PgConnection) -> anyhow::Result<()> {
    payment_ledger::MIGRATOR.run(&mut *template).await?;
    idempotency::MIGRATOR.run(&mut *template).await?;
    hand_over_idempotency_schema(&mut *template).await?;
    // As the first background-worker of the day does.
    sqlx::query("SELECT idempotency.create_partitions()").execute(&mut *template).await?;
    for role in SERVICE_ROLES {
        ensure_login(template, role).await?;
    }
    Ok(())
}

async fn fill_for_switch(template: &mut PgConnection) -> anyhow::Result<()> {
    Ok(mock_switch::MIGRATOR.run(template).await?)
}

/// Creates the login of a role. It runs as the role, which then owns whatever the process creates; by itself it has no rights.
async fn ensure_login(connection: &mut PgConnection, role: &str) -> anyhow::Result<()> {
    let login = login_of(role);
    let exists: Option<i32> = sqlx::query_scalar("SELECT 1 FROM pg_roles WHERE rolname = $1")
        .bind(&login)
        .fetch_optional(&mut *connection)
        .await?;
    if exists.is_none() {
        let create = format!(
            "CREATE ROLE {login} LOGIN NOINHERIT IN ROLE {role}; ALTER ROLE {login} SET role = {role}"
        );
        sqlx::raw_sql(AssertSqlSafe(create)).execute(connection).await?;
    }
    Ok(())
}

async fn create(maintenance: &mut PgConnection, name: &str, template: Option<&str>) -> anyhow::Result<()> {
    let template = template.map(|template| format!(" TEMPLATE {template}")).unwrap_or_default();
    // Copies files, in place of writing each page to the log: a third less of the server's CPU time, with its two checkpoints.
    let create = format!("CREATE DATABASE {name}{template} STRATEGY file_copy");
    sqlx::query(AssertSqlSafe(create)).execute(maintenance).await?;
    Ok(())
}

/// URL of the database `name` on the same server.
fn url_of(maintenance_url: &str, name: &str) -> String {
    let (server, rest) = maintenance_url.rsplit_once('/').unwrap_or((maintenance_url, ""));
    let parameters = rest.split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
    format!("{server}/{name}{parameters}")
}
