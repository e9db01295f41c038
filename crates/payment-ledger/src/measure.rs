//! What is open, held, undelivered and waiting for people: the numbers that gauges show (S0.15).

use payment_protocol::PaymentState;
use payment_protocol::cause::OperatorReason;

use crate::reconcile::drift::Drift;
use crate::record::Exception;
use crate::{Ledger, LedgerError};

/// Open payments in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenInState {
    /// The state; every open state is there, also when it is empty.
    pub state: PaymentState,
    /// How many.
    pub count: i64,
    /// Age of the oldest since it was accepted, in seconds.
    pub oldest_s: i64,
}

/// Open holds in one currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// ISO 4217 code.
    pub currency: String,
    /// How many.
    pub count: i64,
    /// Their sum, in minor units.
    pub amount_minor: i64,
}

/// Open exceptions of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExceptionsOfKind {
    /// The kind; every kind is there, also when it has none.
    pub kind: &'static str,
    /// How many.
    pub count: i64,
}

/// Entries of the journal that are not sealed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsealed {
    /// How many.
    pub count: i64,
    /// Age of the oldest, in seconds.
    pub oldest_s: i64,
}

/// Payments that stand before a person for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandingFor {
    /// The reason; every reason is there, also when nothing stands for it.
    pub reason: OperatorReason,
    /// How many.
    pub count: i64,
    /// How long the oldest has stood, in seconds.
    pub oldest_s: i64,
}

impl Ledger {
    /// Open payments by state. Made from the states themselves, so that none can be forgotten.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn open_by_state(&self) -> Result<Vec<OpenInState>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT state, count(*) AS "count!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(accepted_at)), 0)::bigint AS "oldest_s!"
               FROM payments WHERE ended_at IS NULL GROUP BY state"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(PaymentState::ALL
            .iter()
            .filter(|state| state.end().is_none())
            .map(|state| {
                let row = rows.iter().find(|row| row.state == state.as_str());
                OpenInState {
                    state: *state,
                    count: row.map_or(0, |row| row.count),
                    oldest_s: row.map_or(0, |row| row.oldest_s),
                }
            })
            .collect())
    }

    /// Open holds by currency.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn held_by_currency(&self) -> Result<Vec<Held>, LedgerError> {
        Ok(sqlx::query_as!(
            Held,
            r#"SELECT currency, count(*) AS "count!", sum(amount_minor)::bigint AS "amount_minor!"
               FROM holds WHERE status = 'open' GROUP BY currency"#
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Entries that wait to be sealed.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn unsealed(&self) -> Result<Unsealed, LedgerError> {
        Ok(sqlx::query_as!(
            Unsealed,
            r#"SELECT count(*) AS "count!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(j.posted_at)), 0)::bigint AS "oldest_s!"
               FROM journal_unsealed u LEFT JOIN journal j USING (entry_id)"#
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// Notices in the inbox that no workflow was told.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn undelivered(&self) -> Result<i64, LedgerError> {
        Ok(sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM inbox WHERE delivered_at IS NULL"#)
            .fetch_one(&self.pool)
            .await?)
    }

    /// Exceptions that no decision has closed.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn open_exceptions(&self) -> Result<i64, LedgerError> {
        Ok(sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM exceptions WHERE closed_at IS NULL"#)
            .fetch_one(&self.pool)
            .await?)
    }

    /// Exceptions that no decision has closed, by kind.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn open_exceptions_by_kind(&self) -> Result<Vec<ExceptionsOfKind>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT kind, count(*) AS "count!" FROM exceptions WHERE closed_at IS NULL GROUP BY kind"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(Exception::ALL
            .iter()
            .map(|kind| kind.as_str())
            .chain(Drift::ALL.iter().map(|drift| drift.as_str()))
            .map(|kind| ExceptionsOfKind {
                kind,
                count: rows.iter().find(|row| row.kind == kind).map_or(0, |row| row.count),
            })
            .collect())
    }

    /// Payments that stand before a person, by reason.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn standing_by_reason(&self) -> Result<Vec<StandingFor>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT operator_reason, count(*) AS "count!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(standing_since)), 0)::bigint AS "oldest_s!"
               FROM payments WHERE state = 'needs_operator' GROUP BY operator_reason"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(OperatorReason::ALL
            .iter()
            .map(|reason| {
                let row = rows.iter().find(|row| row.operator_reason.as_deref() == Some(reason.as_str()));
                StandingFor {
                    reason: *reason,
                    count: row.map_or(0, |row| row.count),
                    oldest_s: row.map_or(0, |row| row.oldest_s),
                }
            })
            .collect())
    }
}
