//! What can go wrong in the database of events.

/// No outcome.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// No answer, a lost connection, a conflict: whether it is stored is not known.
    #[error("the database of events did not answer")]
    Database(#[from] sqlx::Error),
}
