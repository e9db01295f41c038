//! Reconciliation: compares the ledger with the switches' statements and the running workflows (S0.15).
//!
//! A run reads the new lines of every statement, records the running workflows, and compares all payments, or those of a window, in
//! batches: one row of evidence each, judged by a pure function. Memory is bounded by a batch, and each batch is a statement of its own, so a
//! run blocks nobody. A finding opens an exception; no money moves.
//!
//! | file | question |
//! |---|---|
//! | [`payment_protocol::drift`] | Which differences are drift, and which are in progress? |
//! | [`statement`] | Which statement lines are stored? |
//! | [`payments`] | What is the evidence about each payment? |
//! | [`holds`] | Which holds are open, and are they consistent? |
//! | [`unmatched`] | Which statement lines, callbacks and workflows have no payment? |
//! | [`findings`] | Which exceptions are opened? |
//! | [`window`] | Which payments does a run with a window compare? |
//! | [`restore`] | What may a database lack that lost commits, and which payments does that concern? |

pub mod findings;
pub mod holds;
pub mod payments;
pub mod restore;
pub mod statement;
pub mod unmatched;
pub mod window;

use jiff_sqlx::ToSqlx as _;
use postgres_kit::deletion::{BATCH, delete_in_batches};
use serde::{Deserialize, Serialize};
use sqlx::Executor as _;

use self::window::ReconciliationWindow;
use crate::{Ledger, LedgerError};

/// Id of a reconciliation run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconciliationRunId(pub i64);

/// What the ledger had when a run began: everything after it came during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconciliationBaseline {
    /// The last statement line; 0 if there was none.
    pub last_line_id: i64,
    /// The last exception; 0 if there was none.
    pub last_exception_id: i64,
    /// The part of the history that the run compares; `None`: all of it.
    #[serde(default)]
    pub window: Option<ReconciliationWindow>,
}

impl Ledger {
    /// The baseline of a run over everything that begins now.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn reconciliation_baseline(&self) -> Result<ReconciliationBaseline, LedgerError> {
        let last = sqlx::query!(
            r#"SELECT coalesce((SELECT max(line_id) FROM statement_lines), 0) AS "line_id!",
                      coalesce((SELECT max(exception_id) FROM exceptions), 0) AS "exception_id!""#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(ReconciliationBaseline {
            last_line_id: last.line_id,
            last_exception_id: last.exception_id,
            window: None,
        })
    }

    /// Begins a run. With a window of this many seconds, lists what is open outside of it; window and list show one instant.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn begin_reconciliation_run(
        &self,
        window_s: Option<i64>,
    ) -> Result<(ReconciliationRunId, Option<ReconciliationWindow>), LedgerError> {
        let mut tx = self.pool.begin().await?;
        tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
        let window = match window_s {
            Some(seconds) => Some(window::window(&mut tx, seconds).await?),
            None => None,
        };
        let id = sqlx::query_scalar!(
            "INSERT INTO reconciliation_runs (window_began_at) VALUES ($1) RETURNING reconciliation_id",
            window.map(|window| window.since.to_sqlx()) as Option<jiff_sqlx::Timestamp>,
        )
        .fetch_one(&mut *tx)
        .await?;
        let run = ReconciliationRunId(id);
        if let Some(window) = &window {
            window::list(&mut tx, run, window).await?;
        }
        tx.commit().await?;
        Ok((run, window))
    }

    /// Deletes the lists of earlier runs. An attempt of one may still be alive, so they stay for some hours after its end, and for a week
    /// without one.
    ///
    /// # Errors
    /// [`LedgerError`]; what was deleted before stays deleted.
    pub async fn delete_old_reconciliation_lists(&self) -> Result<(), LedgerError> {
        delete_in_batches(|| {
            sqlx::query!(
                "DELETE FROM running_workflows WHERE (reconciliation_id, workflow_id) IN (
                     SELECT w.reconciliation_id, w.workflow_id
                     FROM running_workflows w JOIN reconciliation_runs r USING (reconciliation_id)
                     WHERE r.finished_at IS NOT NULL OR r.started_at < clock_timestamp() - interval '1 day' LIMIT $1)",
                BATCH,
            )
            .execute(&self.pool)
        })
        .await?;
        delete_in_batches(|| {
            sqlx::query!(
                "DELETE FROM reconciled_payments WHERE (reconciliation_id, payment_id) IN (
                     SELECT p.reconciliation_id, p.payment_id
                     FROM reconciled_payments p JOIN reconciliation_runs r USING (reconciliation_id)
                     WHERE r.finished_at < clock_timestamp() - interval '3 hours'
                        OR r.started_at < clock_timestamp() - interval '7 days' LIMIT $1)",
                BATCH,
            )
            .execute(&self.pool)
        })
        .await?;
        Ok(())
    }

    /// Records the running workflows as Temporal listed them.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn record_running_workflows(
        &self,
        run: ReconciliationRunId,
        workflow_ids: &[String],
    ) -> Result<(), LedgerError> {
        sqlx::query!(
            "INSERT INTO running_workflows (reconciliation_id, workflow_id) SELECT $1, unnest($2::text[])
             ON CONFLICT DO NOTHING",
            run.0,
            workflow_ids,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Deletes a list of running workflows.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn delete_running_workflows(&self, run: ReconciliationRunId) -> Result<(), LedgerError> {
        sqlx::query!("DELETE FROM running_workflows WHERE reconciliation_id = $1", run.0)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The report of a run; `None` before its end.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn reconciliation_report(
        &self,
        run: ReconciliationRunId,
    ) -> Result<Option<serde_json::Value>, LedgerError> {
        let report =
            sqlx::query_scalar!("SELECT report FROM reconciliation_runs WHERE reconciliation_id = $1", run.0)
                .fetch_optional(&self.pool)
                .await?;
        Ok(report.flatten())
    }

    /// Stores the report of a run, unless another attempt has, and deletes its list of running workflows.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn finish_reconciliation_run(
        &self,
        run: ReconciliationRunId,
        report: &serde_json::Value,
    ) -> Result<(), LedgerError> {
        let mut tx = self.pool.begin().await?;
        sqlx::query!("DELETE FROM running_workflows WHERE reconciliation_id = $1", run.0)
            .execute(&mut *tx)
            .await?;
        sqlx::query!(
            "UPDATE reconciliation_runs SET finished_at = clock_timestamp(), report = $2
             WHERE reconciliation_id = $1 AND finished_at IS NULL",
            run.0,
            report,
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }
}
