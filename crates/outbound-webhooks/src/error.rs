//! Errors of the database.

/// The database failed, or a row is invalid.
#[derive(Debug, thiserror::Error)]
pub enum WebhooksError {
    /// No answer, a lost connection or a conflict: whether the change is stored is unknown.
    #[error("the webhook database failed")]
    Database(#[from] sqlx::Error),
    /// A column has a value that this version does not know.
    #[error("webhook row {id} has the unknown value {value:?} in column {column}")]
    InvalidValue {
        /// Id of the row.
        id: String,
        /// The column.
        column: &'static str,
        /// Its value.
        value: String,
    },
}
