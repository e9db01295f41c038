//! Errors of the database.

/// The database failed, or a row is invalid.
#[derive(Debug, thiserror::Error)]
pub enum WebhooksError {
    /// No answer, a lost connection or a conflict: whether the change is stored is unknown.
    #[error(
        "the database of outbound webhooks did not answer and the outcome of the change is unknown; the caller repeats the change"
    )]
    Database(#[from] sqlx::Error),
    /// A column has a value that this version does not know.
    #[error(
        "column {column} of webhook row {id} has the value {value:?}, which this version cannot parse; deploy the version that wrote the row"
    )]
    InvalidValue {
        /// Id of the row.
        id: String,
        /// The column.
        column: &'static str,
        /// Its value.
        value: String,
    },
}
