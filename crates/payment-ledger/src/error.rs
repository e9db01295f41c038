//! Errors of the ledger, by what the caller should do.

/// Why a step of the ledger has no outcome. Refusals are outcomes, not errors.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// No answer, a lost connection or a conflict: the outcome is unknown. Repeat under the same key.
    #[error(
        "the ledger's database did not answer and it is unknown whether the change was stored; Temporal repeats a payment's step, any other caller repeats its request"
    )]
    Unavailable(#[source] sqlx::Error),
    /// A constraint refused a change that the rules allowed. A defect: a repeat does not help.
    #[error(
        "a constraint of the ledger's database refused the change and nothing was stored; this is a software defect, so repeating the request does not help"
    )]
    Refused(#[source] sqlx::Error),
    /// No such payment.
    #[error("the ledger has no payment {0}; check the payment id")]
    UnknownPayment(String),
    /// A stored value cannot be parsed.
    #[error(
        "column {column} of ledger row {id} has the value {value:?}, which this version cannot parse; deploy the version that wrote the row"
    )]
    Unreadable {
        /// Id of the row.
        id: String,
        /// The column.
        column: &'static str,
        /// The stored value.
        value: String,
    },
    /// The payment's hold contradicts its other rows: the database was changed outside the service. No money was moved and
    /// nothing was written.
    #[error(
        "the ledger's records of payment {payment_id} contradict each other: {detail}; nothing was written; run payctl ledger verify"
    )]
    Inconsistent {
        /// The payment.
        payment_id: String,
        /// The contradiction.
        detail: &'static str,
    },
}

impl LedgerError {
    /// Whether a repeat can never succeed. A row that this process cannot parse may be readable for a newer one, so
    /// [`LedgerError::Unreadable`] is not final; nor is [`LedgerError::Inconsistent`], which ends with the repair of the rows.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether the database's role, or the operator whose session it acts in, may not do it (SQLSTATE 42501).
    #[must_use]
    pub fn is_not_allowed(&self) -> bool {
        self.has_code("42501")
    }

    /// Whether another transaction kept a lock for too long (SQLSTATE 55P03).
    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.has_code("55P03")
    }

    /// Whether the database gave this SQLSTATE as the reason that there is no outcome.
    fn has_code(&self, sqlstate: &str) -> bool {
        let Self::Unavailable(error) = self else { return false };
        error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == sqlstate)
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
        // Two payments minted one id at the same instant: a repeat mints another.
        if error.as_database_error().and_then(|db| db.constraint()) == Some("payments_by_rail_id") {
            return Self::Unavailable(error);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_does_not_answer_is_neither_a_missing_right_nor_a_lock_nor_final() {
        let error = LedgerError::from(sqlx::Error::PoolTimedOut);
        assert!(!error.is_not_allowed() && !error.is_lock_timeout() && !error.is_final(), "{error:?}");
    }
}
