//! Errors of the ledger, by what the caller should do.

/// Why a step of the ledger has no outcome. Refusals are outcomes, not errors.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// No answer, a lost connection or a conflict: the outcome is unknown. Repeat under the same key.
    #[error("the ledger's database did not answer and the outcome of the step is unknown; repeat the step")]
    Unavailable(#[source] sqlx::Error),
    /// A constraint refused a change that the rules allowed. A defect: a repeat does not help.
    #[error(
        "a constraint of the ledger's database refused the change; this is a software defect, do not repeat the step"
    )]
    Refused(#[source] sqlx::Error),
    /// No such payment.
    #[error("there is no payment {0}; check the id")]
    UnknownPayment(String),
    /// A stored value cannot be parsed.
    #[error(
        "column {column} of ledger row {id} has the value {value:?}, which this version cannot parse; deploy the version that wrote it"
    )]
    Unreadable {
        /// Id of the row.
        id: String,
        /// The column.
        column: &'static str,
        /// The stored value.
        value: String,
    },
}

impl LedgerError {
    /// Whether a repeat can never succeed. A row that this process cannot parse may be readable for a newer one, so
    /// [`LedgerError::Unreadable`] is not final.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        // Final: SQLSTATE classes 23 (integrity, including our triggers' restrict_violation) and 22 (data). A repeat may
        // succeed after class 40 (serialisation, deadlock), 53 (resources), 57 (shutdown), and 42 (a table or column that a
        // running migration has not created yet).
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
