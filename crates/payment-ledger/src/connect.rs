//! Connecting to the ledger's database: the `[database]` section of the configuration.

use std::str::FromStr as _;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// How long a step waits for a connection from the pool.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeouts enforced by the server: a frozen process must not keep a row locked, and an aborted transaction cannot
/// commit late. A step that timed out has no outcome and is repeated.
const TIMEOUTS: [(&str, &str); 3] =
    [("lock_timeout", "3s"), ("statement_timeout", "8s"), ("idle_in_transaction_session_timeout", "10s")];

/// Section `[database]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatabaseOptions {
    /// URL of the ledger's database. Default `postgres://payments@127.0.0.1:5632/payments`.
    pub url: SecretString,
    /// Connections per process, at least 1, beside one for each channel on which it waits for notifications. Default 16.
    pub max_connections: u32,
}

/// A `[database]` section that is refused at start-up.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseOptionsError {
    /// The URL cannot be parsed. The message omits it, since it may contain a password.
    #[error("database.url is not a PostgreSQL URL; use the form postgres://user@host:5432/payments")]
    Url(#[source] sqlx::Error),
    /// The pool would have no connections.
    #[error("database.max_connections must be greater than zero")]
    NoConnections,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self { url: "postgres://payments@127.0.0.1:5632/payments".into(), max_connections: 16 }
    }
}

impl DatabaseOptions {
    /// A pool that connects on first use, with `process` as the application name.
    ///
    /// # Errors
    /// [`DatabaseOptionsError`].
    pub fn pool(&self, process: &str) -> Result<PgPool, DatabaseOptionsError> {
        if self.max_connections == 0 {
            return Err(DatabaseOptionsError::NoConnections);
        }
        let options =
            PgConnectOptions::from_str(self.url.expose_secret()).map_err(DatabaseOptionsError::Url)?;
        Ok(PgPoolOptions::new()
            .max_connections(self.max_connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(options.application_name(process).options(TIMEOUTS)))
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
}
