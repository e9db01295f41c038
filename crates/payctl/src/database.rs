//! The database that a command works on.

use std::str::FromStr as _;
use std::time::Duration;

use anyhow::Context as _;
use payment_ledger::Ledger;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// One command works on one thing at a time.
const CONNECTIONS: u32 = 1;
/// How long a command waits for the database; only `migrate` waits for one that is starting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the ledger is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DatabaseArgs {
    /// The payments database
    #[arg(
        long,
        value_name = "URL",
        env = "PAYMENTS_DATABASE__URL",
        default_value = "postgres://payments@127.0.0.1:5632/payments",
        hide_env_values = true
    )]
    database_url: SecretString,
}

impl DatabaseArgs {
    /// The URL, with its password if it has one.
    pub(crate) fn url(&self) -> &str {
        self.database_url.expose_secret()
    }

    /// The URL, read.
    ///
    /// # Errors
    /// When it is not a PostgreSQL URL; it is not repeated, since it may hold a password.
    pub(crate) fn options(&self) -> anyhow::Result<PgConnectOptions> {
        let options = PgConnectOptions::from_str(self.url()).context(
            "--database-url (PAYMENTS_DATABASE__URL) is not like postgres://user@127.0.0.1:5632/payments",
        )?;
        Ok(options.application_name("payctl"))
    }

    /// The ledger in a database that is there and migrated.
    ///
    /// # Errors
    /// When it is not, or cannot be reached; the message names the setting or the command that helps.
    pub(crate) async fn ledger(&self) -> anyhow::Result<Ledger> {
        let options = self.options()?;
        let place = place(&options);
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT)
            .connect_with(options)
            .await
            .with_context(|| format!("{place} cannot be opened; see --database-url"))?;
        anyhow::ensure!(is_up_to_date(&pool).await?, "{place} is not up to date; run: payctl migrate");
        Ok(Ledger::new(pool))
    }
}

/// Whether the newest migration was applied, told by what it made: the services' role cannot read which were.
pub(crate) async fn is_up_to_date(pool: &PgPool) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT to_regclass('inbox_by_payment') IS NOT NULL").fetch_one(pool).await
}

/// The database for people, without user and password.
pub(crate) fn place(options: &PgConnectOptions) -> String {
    format!("database {} at {}:{}", name(options), options.get_host(), options.get_port())
}

/// The database's name; PostgreSQL's default is the user's.
pub(crate) fn name(options: &PgConnectOptions) -> &str {
    options.get_database().unwrap_or_else(|| options.get_username())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_shown_nowhere() {
        let args = |url: &str| DatabaseArgs { database_url: url.into() };
        let good = args("postgres://user:hunter2@db.example:5432/payments");
        assert_eq!(place(&good.options().unwrap()), "database payments at db.example:5432");
        assert!(!format!("{good:?}").contains("hunter2"));
        let bad = args("postgres://user:hunter2@db:port/payments").options().unwrap_err();
        assert!(!format!("{bad:#}").contains("hunter2"), "{bad:#}");
    }
}
