//! What the database does not answer in time.

use std::io;

use sqlx::Postgres;
use sqlx::pool::PoolConnection;

/// The error of work on `connection` that was given up after a time limit. The connection is closed instead of returned to the pool:
/// it may hold an open transaction, or wait for a server that is gone.
pub fn timed_out(connection: &mut PoolConnection<Postgres>) -> sqlx::Error {
    connection.close_on_drop();
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the database did not answer in time"))
}
