//! What can go wrong in the database of endpoints.

/// No outcome, or a row that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WebhooksError {
    /// No answer, a lost connection, a conflict: whether it is stored is not known.
    #[error("the database of webhook endpoints did not answer")]
    Database(#[from] sqlx::Error),
    /// A word that this version does not know.
    #[error("{what} of {id} cannot be read: {value:?}")]
    Unreadable {
        /// The row.
        id: String,
        /// The column.
        what: &'static str,
        /// What is there.
        value: String,
    },
}
