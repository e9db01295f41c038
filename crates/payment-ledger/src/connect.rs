//! How a process reaches the ledger: the `[database]` section of its configuration.

use std::str::FromStr as _;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// How long a step waits for a connection before it has no outcome.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// Bounds that the server itself keeps: a frozen process must not hold a row that others need, and a
/// transaction that was cut can no longer commit late. What is cut has no outcome and is repeated.
const BOUNDS: [(&str, &str); 3] =
    [("lock_timeout", "3s"), ("statement_timeout", "8s"), ("idle_in_transaction_session_timeout", "10s")];

/// Section `[database]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatabaseOptions {
    /// URL. Default `postgres://payments@127.0.0.1:5632/payments`.
    pub url: SecretString,
    /// Connections of each process, at least 1. Default 16.
    pub max_connections: u32,
}

/// A `[database]` section that is refused at start-up.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseOptionsError {
    /// The URL cannot be read. It is not repeated, since it may hold a password.
    #[error("database.url is not a PostgreSQL URL; write it like postgres://user@host:5432/payments")]
    Url(#[source] sqlx::Error),
    /// A pool of nothing.
    #[error("database.max_connections must be greater than zero")]
    NoConnections,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self { url: "postgres://payments@127.0.0.1:5632/payments".into(), max_connections: 16 }
    }
}

impl DatabaseOptions {
    /// A pool that connects when it is first needed, under the process's name.
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
            .connect_lazy_with(options.application_name(process).options(BOUNDS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let options = DatabaseOptions { url: "postgres://u:hidden@h/d".into(), ..DatabaseOptions::default() };
        assert!(!format!("{options:?}").contains("hidden"));
    }
}
