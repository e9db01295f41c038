//! Counts for the gauges: open payments, undelivered messages, exceptions, and payments that need an operator (S0.15).

use payment_protocol::PaymentState;
use payment_protocol::alert::AlertKind;
use payment_protocol::cause::OperatorReason;
use payment_protocol::drift::{Drift, Tolerance};
use payment_protocol::exception::ExceptionKind;

use crate::{Ledger, LedgerError};

/// Open payments in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPaymentCount {
    /// The state. Every open state is listed, also without payments.
    pub state: PaymentState,
    /// Number of payments.
    pub count: i64,
    /// Age of the oldest since its acceptance, in seconds.
    pub oldest_s: i64,
    /// Seconds since the update of the one not updated for longest. A cancel counts as not updated since its begin, less the time by
    /// which its switch's `alert_after_ms` exceeds the tolerance of a cancel.
    pub idle_s: i64,
}

/// Undelivered inbox messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndeliveredCount {
    /// Number of messages.
    pub count: i64,
    /// Age of the oldest, in seconds.
    pub oldest_s: i64,
}

/// Open payments with an alert of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlertCount {
    /// The kind. Every kind is listed, also without payments.
    pub kind: AlertKind,
    /// Number of payments.
    pub count: i64,
}

/// Active kill switches and limits in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestrictionCounts {
    /// Stopped switches.
    pub switches_stopped: i64,
    /// Stopped corridors.
    pub corridors_stopped: i64,
    /// Age of the oldest active kill switch, in seconds.
    pub stop_oldest_s: i64,
    /// Limits of accounts.
    pub accounts_limited: i64,
    /// Limits of tenants.
    pub tenants_limited: i64,
    /// Account limits that are used up for today.
    pub accounts_used_up: i64,
    /// Tenant limits that are used up for today.
    pub tenants_used_up: i64,
}

/// The last reconciliation run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastReconciliationRun {
    /// Seconds since a run finished; before the first run, since the first payment.
    pub finished_s: i64,
    /// The same of a run without a window.
    pub full_finished_s: i64,
    /// Sources that the last run could not read.
    pub not_compared: i64,
}

/// Open exceptions of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExceptionCount {
    /// The kind. Every kind is listed, also without exceptions.
    pub kind: &'static str,
    /// Number of exceptions.
    pub count: i64,
    /// Age of the oldest, in seconds.
    pub oldest_s: i64,
}

/// Unsealed journal entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsealedCount {
    /// Number of entries.
    pub count: i64,
    /// Age of the oldest, in seconds.
    pub oldest_s: i64,
}

/// Payments that need an operator for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsOperatorCount {
    /// The reason. Every reason is listed, also without payments.
    pub reason: OperatorReason,
    /// Number of payments.
    pub count: i64,
    /// How long the oldest has needed an operator, in seconds.
    pub oldest_s: i64,
}

impl Ledger {
    /// Open payments by state, every state included.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn open_by_state(&self) -> Result<Vec<OpenPaymentCount>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT state, count(*) AS "count!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(accepted_at)), 0)::bigint AS "oldest_s!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(CASE state
                          WHEN 'needs_operator' THEN coalesce(needs_operator_since, updated_at)
                          WHEN 'cancelling' THEN coalesce(cancelling_since, updated_at)
                              + greatest(0, (SELECT (a.profile ->> 'alert_after_ms')::bigint FROM switch_profiles a
                                             WHERE a.profile_hash = payments.profile_hash) - $1) * interval '1 millisecond'
                          ELSE updated_at END)), 0)::bigint AS "idle_s!"
               FROM payments WHERE ended_at IS NULL GROUP BY state"#,
            Tolerance::default().cancelling_s * 1_000,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(PaymentState::ALL
            .iter()
            .filter(|state| state.end().is_none())
            .map(|state| {
                let row = rows.iter().find(|row| row.state == state.as_str());
                OpenPaymentCount {
                    state: *state,
                    count: row.map_or(0, |row| row.count),
                    oldest_s: row.map_or(0, |row| row.oldest_s),
                    idle_s: row.map_or(0, |row| row.idle_s.max(0)),
                }
            })
            .collect())
    }

    /// Unsealed journal entries.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn unsealed(&self) -> Result<UnsealedCount, LedgerError> {
        Ok(sqlx::query_as!(
            UnsealedCount,
            r#"SELECT count(*) AS "count!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(j.posted_at)), 0)::bigint AS "oldest_s!"
               FROM journal_unsealed u LEFT JOIN LATERAL (SELECT * FROM journal WHERE entry_id = u.entry_id LIMIT 1) j ON true"#
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// Undelivered inbox messages.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn undelivered(&self) -> Result<UndeliveredCount, LedgerError> {
        Ok(sqlx::query_as!(
            UndeliveredCount,
            r#"SELECT count(*) AS "count!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(received_at)), 0)::bigint AS "oldest_s!"
               FROM inbox WHERE delivered_at IS NULL"#
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// The number of open exceptions.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn open_exceptions(&self) -> Result<i64, LedgerError> {
        Ok(sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM exceptions WHERE closed_at IS NULL"#)
            .fetch_one(&self.pool)
            .await?)
    }

    /// Open exceptions by kind.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn open_exceptions_by_kind(&self) -> Result<Vec<ExceptionCount>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT kind, count(*) AS "count!",
                      coalesce(extract(epoch FROM clock_timestamp() - min(opened_at)), 0)::bigint AS "oldest_s!"
               FROM exceptions WHERE closed_at IS NULL GROUP BY kind"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(ExceptionKind::ALL
            .iter()
            .map(|kind| kind.as_str())
            .chain(Drift::ALL.iter().map(|drift| drift.as_str()))
            .map(|kind| {
                let row = rows.iter().find(|row| row.kind == kind);
                ExceptionCount {
                    kind,
                    count: row.map_or(0, |row| row.count),
                    oldest_s: row.map_or(0, |row| row.oldest_s),
                }
            })
            .collect())
    }

    /// Open payments with alerts, by kind.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn alerts_by_kind(&self) -> Result<Vec<AlertCount>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT a.kind, count(*) AS "count!"
               FROM payments p JOIN alerts a USING (payment_id) WHERE p.ended_at IS NULL GROUP BY a.kind"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(AlertKind::ALL
            .iter()
            .map(|kind| AlertCount {
                kind: *kind,
                count: rows.iter().find(|row| row.kind == kind.as_str()).map_or(0, |row| row.count),
            })
            .collect())
    }

    /// Active kill switches and limits in force.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn restrictions(&self) -> Result<RestrictionCounts, LedgerError> {
        Ok(sqlx::query_as!(
            RestrictionCounts,
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
               active AS (SELECT * FROM kill_switches WHERE lifted_at IS NULL)
               SELECT (SELECT count(switch) FROM active) AS "switches_stopped!",
                      (SELECT count(currency) FROM active) AS "corridors_stopped!",
                      (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(activated_at)), 0)::bigint FROM active)
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

    /// The last reconciliation run, and the sources that it could not read.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn last_reconciliation_run(&self) -> Result<LastReconciliationRun, LedgerError> {
        Ok(sqlx::query_as!(
            LastReconciliationRun,
            r#"WITH last AS (
                   SELECT finished_at, report FROM reconciliation_runs WHERE finished_at IS NOT NULL
                   ORDER BY reconciliation_id DESC LIMIT 1),
               last_full AS (
                   SELECT finished_at FROM reconciliation_runs WHERE finished_at IS NOT NULL AND window_began_at IS NULL
                   ORDER BY reconciliation_id DESC LIMIT 1),
               first AS (
                   SELECT accepted_at FROM payments
                   WHERE payment_id = (SELECT payment_id FROM timeline ORDER BY entry_id LIMIT 1))
               SELECT coalesce(extract(epoch FROM clock_timestamp() - coalesce((SELECT finished_at FROM last),
                                                                               (SELECT accepted_at FROM first))), 0)::bigint
                          AS "finished_s!",
                      coalesce(extract(epoch FROM clock_timestamp() - coalesce((SELECT finished_at FROM last_full),
                                                                               (SELECT accepted_at FROM first))), 0)::bigint
                          AS "full_finished_s!",
                      coalesce((SELECT jsonb_array_length(CASE jsonb_typeof(report -> 'not_compared')
                                                          WHEN 'array' THEN report -> 'not_compared' ELSE '[]' END)
                                FROM last), 0)::bigint AS "not_compared!""#
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// Payments that need an operator, by reason.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn needs_operator_by_reason(&self) -> Result<Vec<NeedsOperatorCount>, LedgerError> {
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
                NeedsOperatorCount {
                    reason: *reason,
                    count: row.map_or(0, |row| row.count),
                    oldest_s: row.map_or(0, |row| row.oldest_s),
                }
            })
            .collect())
    }
}
