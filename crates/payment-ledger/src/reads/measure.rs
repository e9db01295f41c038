//! What is open, held, undelivered and waiting for people: the numbers that gauges show (S0.15).

use payment_protocol::PaymentState;
use payment_protocol::cause::OperatorReason;

use crate::audit::reconcile::drift::Drift;
use crate::operator::alerts::AlertKind;
use crate::writes::Exception;
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
    /// For how long the one that moved longest ago has not, in seconds: what `payctl stuck` lists.
    pub idle_s: i64,
}

/// Notices that no workflow was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// How many.
    pub count: i64,
    /// Age of the oldest, in seconds.
    pub oldest_s: i64,
}

/// Open payments that a person was alerted to for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alerted {
    /// The kind of alert; every kind is there, also when it has none.
    pub kind: AlertKind,
    /// How many.
    pub count: i64,
}

/// What people have stopped or limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restrained {
    /// Switches that take no new payments.
    pub switches_stopped: i64,
    /// Corridors that take no new payments.
    pub corridors_stopped: i64,
    /// How long the oldest stop has stood, in seconds.
    pub stop_oldest_s: i64,
    /// Limits of accounts.
    pub accounts_limited: i64,
    /// Limits of tenants.
    pub tenants_limited: i64,
    /// Of the accounts' limits, those of which today has nothing left.
    pub accounts_used_up: i64,
    /// Of the tenants' limits, those of which today has nothing left.
    pub tenants_used_up: i64,
}

/// The last comparison of the three books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastReconciliationRun {
    /// How long ago one was finished, in seconds. Before the first: how long there have been payments.
    pub finished_s: i64,
    /// Books that it could not read.
    pub not_compared: i64,
}

/// Open exceptions of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExceptionsOfKind {
    /// The kind; every kind is there, also when it has none.
    pub kind: &'static str,
    /// How many.
    pub count: i64,
    /// Age of the oldest, in seconds.
    pub oldest_s: i64,
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
pub struct NeedingOperator {
    /// The reason; every reason is there, also when nothing stands for it.
    pub reason: OperatorReason,
    /// How many.
    pub count: i64,
    /// How long the oldest has stood, in seconds.
    pub oldest_s: i64,
}

impl Ledger {
    /// Open payments by state. Made from the states themselves, so that none can be retention_expired.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn open_by_state(&self) -> Result<Vec<OpenInState>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT state, count(*) AS "count!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(accepted_at)), 0)::bigint AS "oldest_s!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(CASE state
                          WHEN 'needs_operator' THEN coalesce(needs_operator_since, updated_at)
                          WHEN 'cancelling' THEN coalesce(cancelling_since, updated_at)
                          ELSE updated_at END)), 0)::bigint AS "idle_s!"
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
                    idle_s: row.map_or(0, |row| row.idle_s),
                }
            })
            .collect())
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
    pub async fn undelivered(&self) -> Result<Undelivered, LedgerError> {
        Ok(sqlx::query_as!(
            Undelivered,
            r#"SELECT count(*) AS "count!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(received_at)), 0)::bigint AS "oldest_s!"
               FROM inbox WHERE delivered_at IS NULL"#
        )
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
            r#"SELECT kind, count(*) AS "count!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(opened_at)), 0)::bigint AS "oldest_s!"
               FROM exceptions WHERE closed_at IS NULL GROUP BY kind"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(Exception::ALL
            .iter()
            .map(|kind| kind.as_str())
            .chain(Drift::ALL.iter().map(|drift| drift.as_str()))
            .map(|kind| {
                let row = rows.iter().find(|row| row.kind == kind);
                ExceptionsOfKind {
                    kind,
                    count: row.map_or(0, |row| row.count),
                    oldest_s: row.map_or(0, |row| row.oldest_s),
                }
            })
            .collect())
    }

    /// Open payments that a person was alerted to, by kind of alert.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn alerted_by_kind(&self) -> Result<Vec<Alerted>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT a.kind, count(*) AS "count!"
               FROM payments p JOIN alerts a USING (payment_id) WHERE p.ended_at IS NULL GROUP BY a.kind"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(AlertKind::ALL
            .iter()
            .map(|kind| Alerted {
                kind: *kind,
                count: rows.iter().find(|row| row.kind == kind.as_str()).map_or(0, |row| row.count),
            })
            .collect())
    }

    /// What people have stopped or limited.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn restrained(&self) -> Result<Restrained, LedgerError> {
        Ok(sqlx::query_as!(
            Restrained,
            r#"WITH newest AS (
                   SELECT DISTINCT ON (scope, scope_id, currency) * FROM limits
                   ORDER BY scope, scope_id, currency, limit_id DESC),
               today AS (
                   SELECT l.scope, coalesce(d.used_minor >= l.per_day_minor OR d.used_count >= l.per_day_count
                                            OR l.per_day_minor = 0 OR l.per_day_count = 0, false) AS is_used_up
                   FROM newest l
                   LEFT JOIN limit_days d ON (d.scope, d.scope_id, d.currency) = (l.scope, l.scope_id, l.currency)
                                         AND d.day = (clock_timestamp() AT TIME ZONE 'UTC')::date
                   WHERE num_nonnulls(l.per_payment_minor, l.per_day_minor, l.per_day_count) > 0),
               stopped AS (SELECT * FROM kill_switches WHERE lifted_at IS NULL)
               SELECT (SELECT count(switch) FROM stopped) AS "switches_stopped!",
                      (SELECT count(currency) FROM stopped) AS "corridors_stopped!",
                      (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(activated_at)), 0)::bigint FROM stopped)
                          AS "stop_oldest_s!",
                      count(*) FILTER (WHERE scope = 'account') AS "accounts_limited!",
                      count(*) FILTER (WHERE scope = 'tenant') AS "tenants_limited!",
                      count(*) FILTER (WHERE scope = 'account' AND is_used_up) AS "accounts_used_up!",
                      count(*) FILTER (WHERE scope = 'tenant' AND is_used_up) AS "tenants_used_up!"
               FROM today"#
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// When the three books were last compared, and what could not be.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn last_reconciliation_run(&self) -> Result<LastReconciliationRun, LedgerError> {
        Ok(sqlx::query_as!(
            LastReconciliationRun,
            r#"WITH last AS (
                   SELECT finished_at, report FROM reconciliations WHERE finished_at IS NOT NULL
                   ORDER BY reconciliation_id DESC LIMIT 1)
               SELECT coalesce(extract(epoch FROM clock_timestamp() - coalesce((SELECT finished_at FROM last),
                                                                               (SELECT min(accepted_at) FROM payments))),
                               0)::bigint AS "finished_s!",
                      coalesce((SELECT jsonb_array_length(CASE jsonb_typeof(report -> 'not_compared')
                                                          WHEN 'array' THEN report -> 'not_compared' ELSE '[]' END)
                                FROM last), 0)::bigint AS "not_compared!""#
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// Payments that stand before a person, by reason.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn needing_operator_by_reason(&self) -> Result<Vec<NeedingOperator>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT operator_reason, count(*) AS "count!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(needs_operator_since)), 0)::bigint AS "oldest_s!"
               FROM payments WHERE state = 'needs_operator' GROUP BY operator_reason"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(OperatorReason::ALL
            .iter()
            .map(|reason| {
                let row = rows.iter().find(|row| row.operator_reason.as_deref() == Some(reason.as_str()));
                NeedingOperator {
                    reason: *reason,
                    count: row.map_or(0, |row| row.count),
                    oldest_s: row.map_or(0, |row| row.oldest_s),
                }
            })
            .collect())
    }
}
