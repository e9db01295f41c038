//! The payments database, opened directly.

use std::time::Duration;

use anyhow::Context as _;
use payment_ledger::{DatabaseOptionsError, Ledger, connect_options};
use postgres_kit::Pool;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;

/// Number of connections; a command runs one statement at a time.
const CONNECTIONS: u32 = 1;
/// Time for the connection; only `migrate` waits longer, for a server that is starting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for a statement: the server sets no limit to those of an operator, and some read whole tables.
const STATEMENT_LIMIT: Duration = Duration::from_secs(16 * 60);

/// URL of the payments database.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DatabaseArgs {
    /// URL of the payments database, with the login that the command takes: payctl's own to read, payctl_reconcile_login, or the owner's
    #[arg(
        long,
        value_name = "URL",
        env = "PAYMENTS_DATABASE__URL",
        default_value = "postgres://payments@127.0.0.1:5632/payments",
        hide_env_values = true
    )]
    database_url: SecretString,
    /// Accept a database of another machine whose link is not encrypted and verified, because other means protect it
    #[arg(long, env = "PAYMENTS_DATABASE__ALLOW_PLAINTEXT")]
    database_allow_plaintext: bool,
}

impl DatabaseArgs {
    /// The URL, including its password if it has one.
    pub(crate) fn url(&self) -> &str {
        self.database_url.expose_secret()
    }

    /// The parsed URL.
    ///
    /// # Errors
    /// The URL is not a PostgreSQL URL, or leads to another machine without protection; the message does not repeat it, since it may hold
    /// a password.
    pub(crate) fn options(&self) -> anyhow::Result<PgConnectOptions> {
        let options = connect_options(self.url(), self.database_allow_plaintext);
        let options = options.map_err(|error| match error {
            DatabaseOptionsError::Plaintext(_) => anyhow::anyhow!(
                "--database-url (PAYMENTS_DATABASE__URL) leads to another machine without a verified, encrypted link; add \
                 ?sslmode=verify-full to it, or --database-allow-plaintext if other means protect the link"
            ),
            other => anyhow::Error::from(other).context(
                "--database-url (PAYMENTS_DATABASE__URL) is not a PostgreSQL URL; write it like \
                 postgres://user@127.0.0.1:5632/payments",
            ),
        })?;
        Ok(options.application_name(&program()))
    }

    /// Opens the ledger and checks that its database is migrated.
    ///
    /// # Errors
    /// The database is unreachable or not migrated; the message names the setting or command that helps.
    pub(crate) async fn ledger(&self) -> anyhow::Result<Ledger> {
        let options = self.options()?;
        check(&options, "--database-url").await?;
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(CONNECT_TIMEOUT);
        Ok(Ledger::new(Pool::from(pool.connect_lazy_with(options)).with_statement_limit(STATEMENT_LIMIT)))
    }
}

/// Replaces an error that says that the login has no right to a statement (SQLSTATE 42501) by what to do. Another refusal with that
/// code, such as that of a migration that needs a role, says itself what to do.
pub(crate) fn explain_missing_right(error: anyhow::Error) -> anyhow::Error {
    let refusals = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error));
    let missing = refusals.filter(|refused| refused.code().is_some_and(|code| code == "42501"));
    let Some(message) = missing
        .map(|refused| refused.message().to_owned())
        .find(|message| message.starts_with("permission denied"))
    else {
        return error;
    };
    anyhow::anyhow!(
        "the login of --database-url (PAYMENTS_DATABASE__URL) has no right to a statement of this command ({message}); reconcile and \
         restore-check take the login payctl_reconcile_login, migrate, demo, operators --as-owner and operators reset-password that of \
         the database's owner, and the others payctl_login"
    )
}

/// The name of this program at the database, for the audit log: with the user and the machine, as far as they are known here. The
/// database's login is what it has verified.
pub(crate) fn program() -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let machine = rustix::system::uname();
    format!("payctl {user}@{}", machine.nodename().to_string_lossy())
}

/// Checks that the database can be opened and is migrated. By a connection of its own: a pool tries again, and has only its timeout to say
/// at the end.
///
/// # Errors
/// It cannot be opened, with the reason and the `settings` to check, or lacks migrations.
pub(crate) async fn check(options: &PgConnectOptions, settings: &str) -> anyhow::Result<()> {
    let database = describe(options);
    let opened = async {
        let mut connection = PgConnection::connect_with(options).await?;
        let migrated = is_up_to_date(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(migrated)
    };
    let failed = || format!("{database} cannot be opened; check {settings}");
    let migrated = timeout(CONNECT_TIMEOUT, opened).await.with_context(failed)?.with_context(failed)?;
    anyhow::ensure!(migrated, "{database} lacks migrations; run: payctl migrate");
    Ok(())
}

/// Whether the newest migration was applied. Checks for an object that it creates, because the role of the
/// services cannot read the table of applied migrations.
async fn is_up_to_date(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let newest = "SELECT to_regproc('check_exception_of_reconcile') IS NOT NULL";
    sqlx::query_scalar(newest).fetch_one(connection).await
}

/// Name and address of the database, without user and password.
pub(crate) fn describe(options: &PgConnectOptions) -> String {
    format!("database {} at {}:{}", name(options), options.get_host(), options.get_port())
}

/// The database's name; PostgreSQL's default is the user's name.
pub(crate) fn name(options: &PgConnectOptions) -> &str {
    options.get_database().unwrap_or_else(|| options.get_username())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_output_of_payctl_contains_the_database_password() {
        let args = |url: &str| DatabaseArgs { database_url: url.into(), database_allow_plaintext: false };
        let good = args("postgres://user:hunter2@db.example:5432/payments?sslmode=verify-full");
        assert_eq!(describe(&good.options().unwrap()), "database payments at db.example:5432");
        assert!(!format!("{good:?}").contains("hunter2"));
        let bad = args("postgres://user:hunter2@db:port/payments").options().unwrap_err();
        assert!(!format!("{bad:#}").contains("hunter2"), "{bad:#}");
        let clear = args("postgres://user:hunter2@db.example:5432/payments").options().unwrap_err();
        assert!(format!("{clear:#}").contains("--database-allow-plaintext"), "{clear:#}");
        assert!(!format!("{clear:#}").contains("hunter2"), "{clear:#}");
    }
}
