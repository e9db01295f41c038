//! Errors of the outbox tables.

/// A query failed.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// The database did not answer, the connection was lost, or transactions conflicted. Whether changes are stored is
    /// unknown.
    #[error(
        "the database with the outbox tables did not answer and it is unknown whether the change was stored; the caller repeats it"
    )]
    Database(#[from] sqlx::Error),
}
