//! What can go wrong in the ledger, by what the caller should do.

/// A step that has no outcome. Refusals are outcomes, not errors.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// No answer, a lost connection, a conflict: unknown. Repeat under the same key.
    #[error("the database did not answer")]
    Unavailable(#[source] sqlx::Error),
    /// The database refused what the rules allowed. A defect: repeating does not help.
    #[error("the database refused the change")]
    Refused(#[source] sqlx::Error),
    /// No such payment.
    #[error("there is no payment {0}")]
    UnknownPayment(String),
    /// A stored value cannot be read.
    #[error("{column} of {id} holds {value:?}, which cannot be read")]
    Unreadable {
        /// Whose row.
        id: String,
        /// Which column.
        column: &'static str,
        /// What it holds.
        value: String,
    },
}

impl LedgerError {
    /// Whether repeating the step can never bring its outcome. A row that this process cannot read may
    /// be readable to a newer one.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        // SQLSTATE class 23 (integrity, our own triggers' restrict_violation among it) and 22 (data) do
        // not pass. Classes like 40 (serialisation, deadlock), 53 (resources) and 57 (shutdown) do; so
        // does 42 (a table or column that a migration under way has not made yet).
        let class = error
            .as_database_error()
            .and_then(|db| db.code().map(|code| code.chars().take(2).collect::<String>()));
        match class.as_deref() {
            Some("23" | "22") => Self::Refused(error),
            _ => Self::Unavailable(error),
        }
    }
}

impl From<outbox::OutboxError> for LedgerError {
    fn from(error: outbox::OutboxError) -> Self {
        match error {
            outbox::OutboxError::Database(error) => error.into(),
        }
    }
}
