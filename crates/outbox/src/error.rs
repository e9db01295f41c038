//! Errors of the outbox tables.

/// A query failed.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// The database did not answer, the connection was lost, or transactions conflicted. Whether changes are stored is
    /// unknown.
    #[error("the outbox database failed")]
    Database(#[from] sqlx::Error),
}
