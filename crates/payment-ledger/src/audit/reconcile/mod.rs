//! Reconciliation: compares the ledger with the switches' statements and the running workflows (S0.15).
//!
//! A run reads the new lines of every statement, records the running workflows, and compares all payments in batches: one row
//! of evidence each, judged by a pure function. Memory is bounded by a batch, and each batch is a statement of its own, so a
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
//! | [`restore`] | What may a database lack that lost commits, and which payments does that concern? |

pub mod findings;
pub mod holds;
pub mod payments;
pub mod restore;
pub mod statement;
pub mod unmatched;

use serde::{Deserialize, Serialize};

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
}

impl Ledger {
    /// The baseline of a run that begins now.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn reconciliation_baseline(&self) -> Result<ReconciliationBaseline, LedgerError> {
        let baseline = sqlx::query_as!(
            ReconciliationBaseline,
            r#"SELECT coalesce((SELECT max(line_id) FROM statement_lines), 0) AS "last_line_id!",
                      coalesce((SELECT max(exception_id) FROM exceptions), 0) AS "last_exception_id!""#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(baseline)
    }

    /// Begins a run, and deletes what crashed runs left behind.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn begin_reconciliation_run(&self) -> Result<ReconciliationRunId, LedgerError> {
        let mut tx = self.pool.begin().await?;
        sqlx::query!(
            "DELETE FROM running_workflows w USING reconciliation_runs r
             WHERE r.reconciliation_id = w.reconciliation_id
               AND (r.finished_at IS NOT NULL OR r.started_at < clock_timestamp() - interval '1 day')"
        )
        .execute(&mut *tx)
        .await?;
        let id =
            sqlx::query_scalar!("INSERT INTO reconciliation_runs DEFAULT VALUES RETURNING reconciliation_id")
                .fetch_one(&mut *tx)
                .await?;
        tx.commit().await?;
        Ok(ReconciliationRunId(id))
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

    /// Stores the report of a run and deletes its list of running workflows.
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
            "UPDATE reconciliation_runs SET finished_at = clock_timestamp(), report = $2 WHERE reconciliation_id = $1",
            run.0,
            report,
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }
}
