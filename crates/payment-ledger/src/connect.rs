//! Connecting to the ledger's database: the `[database]` section of the configuration.

use std::str::FromStr as _;
use std::time::Duration;

use link_kit::{PlaintextRefused, is_this_machine};
use postgres_kit::{Pool, unanswered};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{Connection as _, PgConnection};

/// How long a step waits for a connection from the pool.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeouts enforced by the server: a frozen process must not keep a row locked, and an aborted transaction cannot
/// commit late. A step that timed out has no outcome and is repeated. A server that is gone enforces nothing: see
/// [`postgres_kit::STATEMENT_LIMIT`].
const TIMEOUTS: [(&str, &str); 4] = [
    ("lock_timeout", "3s"),
    ("statement_timeout", "8s"),
    ("idle_in_transaction_session_timeout", "10s"),
    // A statement whose client has closed the connection ends: it holds a place among the server's connections, and locks.
    ("client_connection_check_interval", "1s"),
];

/// How long an idle connection of the pool has to answer before a step uses it.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Section `[database]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatabaseOptions {
    /// URL of the ledger's database. Default `postgres://payments@127.0.0.1:5632/payments`. A database of another machine needs
    /// `?sslmode=verify-full`; `&sslrootcert=FILE` names authorities to trust beside those of the operating system, `&sslcert=FILE`
    /// and `&sslkey=FILE` the process's own certificate and key, all in PEM.
    pub url: SecretString,
    /// Accept a database of another machine whose link is not encrypted, or whose name is not verified, because other means protect
    /// the link: passwords, accounts and amounts travel there. Default false.
    pub allow_plaintext: bool,
    /// Connections per process, at least 1, beside one for each channel on which it waits for notifications. Default 16.
    pub max_connections: u32,
}

/// A `[database]` section that is refused at start-up.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseOptionsError {
    /// The URL cannot be parsed. The message omits it, since it may contain a password.
    #[error("database.url is not a PostgreSQL URL; use the form postgres://user@host:5432/payments")]
    Url(#[source] sqlx::Error),
    /// The database is on another machine, and the link to it is not protected.
    #[error(transparent)]
    Plaintext(#[from] PlaintextRefused),
    /// The pool would have no connections.
    #[error("database.max_connections must be greater than zero")]
    NoConnections,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self {
            url: "postgres://payments@127.0.0.1:5632/payments".into(),
            allow_plaintext: false,
            max_connections: 16,
        }
    }
}

/// The options of a connection to the database of this URL.
///
/// # Errors
/// [`DatabaseOptionsError`]: the text is no URL, or leads to another machine without a verified, encrypted link, which
/// `allow_plaintext` accepts.
pub fn connect_options(url: &str, allow_plaintext: bool) -> Result<PgConnectOptions, DatabaseOptionsError> {
    let options = PgConnectOptions::from_str(url).map_err(DatabaseOptionsError::Url)?;
    // A host that begins with a slash is the folder of a socket.
    let host = options.get_host();
    let is_local = options.get_socket().is_some() || host.starts_with('/') || is_this_machine(host);
    match options.get_ssl_mode() {
        PgSslMode::VerifyFull => Ok(options),
        // A URL without a mode means `prefer`, which asks the server for TLS: within the machine that is a round trip for nothing.
        PgSslMode::Prefer if is_local => Ok(options.ssl_mode(PgSslMode::Disable)),
        _ if is_local || allow_plaintext => Ok(options),
        _ => Err(DatabaseOptionsError::Plaintext(PlaintextRefused {
            setting: "database.url",
            remedy: "add ?sslmode=verify-full to it",
            accept: "database.allow_plaintext",
        })),
    }
}

/// Whether the server of an idle connection is there; otherwise the pool opens another one.
async fn is_answering(connection: &mut PgConnection) -> sqlx::Result<bool> {
    tokio::time::timeout(CHECK_TIMEOUT, connection.ping()).await.unwrap_or_else(|_| Err(unanswered()))?;
    Ok(true)
}

impl DatabaseOptions {
    /// A pool that connects on first use, with `process` as the application name.
    ///
    /// # Errors
    /// [`DatabaseOptionsError`].
    pub fn pool(&self, process: &str) -> Result<Pool, DatabaseOptionsError> {
        if self.max_connections == 0 {
            return Err(DatabaseOptionsError::NoConnections);
        }
        let options = connect_options(self.url.expose_secret(), self.allow_plaintext)?;
        let pool = PgPoolOptions::new()
            .max_connections(self.max_connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // sqlx's own check waits as long as the step, and the step has nothing left for a new connection.
            .test_before_acquire(false)
            .before_acquire(|connection, _| Box::pin(is_answering(connection)))
            .connect_lazy_with(options.application_name(process).options(TIMEOUTS));
        Ok(pool.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_output_of_database_options_omits_the_password() {
        let options = DatabaseOptions { url: "postgres://u:hidden@h/d".into(), ..DatabaseOptions::default() };
        assert!(!format!("{options:?}").contains("hidden"));
    }

    #[test]
    fn a_database_of_another_machine_is_reached_in_clear_only_if_the_configuration_accepts_it() {
        let mode = |url: &str, allow_plaintext| {
            let options = connect_options(url, allow_plaintext).map_err(|error| error.to_string());
            options.map(|options| format!("{:?}", options.get_ssl_mode()))
        };
        for (url, within) in [
            ("postgres://u@127.0.0.1/d", "Disable"),
            ("postgres://u@[::1]/d", "Disable"),
            ("postgres://u@localhost/d?sslmode=require", "Require"),
            ("postgres://u@%2Frun%2Fpostgresql/d", "Disable"),
            ("postgres://u@localhost/d?host=/run/postgresql", "Disable"),
            ("postgres://u@db.example/d?host=/run/postgresql", "Disable"),
            ("postgres://u:p@db.example/d?sslmode=verify-full", "VerifyFull"),
        ] {
            assert_eq!(mode(url, false).as_deref(), Ok(within), "{url}");
        }
        for parameters in
            ["", "?sslmode=disable", "?sslmode=prefer", "?sslmode=require", "?sslmode=verify-ca"]
        {
            let url = format!("postgres://u:hidden@db.example/d{parameters}");
            let error = mode(&url, false).unwrap_err();
            assert!(error.contains("sslmode=verify-full"), "{error}");
            assert!(
                error.contains("database.allow_plaintext = true") && !error.contains("hidden"),
                "{error}"
            );
            assert!(mode(&url, true).is_ok(), "{url}");
        }
    }
}
