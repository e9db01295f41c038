//! Reconciliation: the switches' statements beside our ledger and the running workflows (S0.15).
//!
//! A sweep reads on in every statement, notes which workflows run, and then goes through all payments in batches: one
//! row of facts each, judged by a pure function. Nothing is kept in memory but a batch, and each batch is a statement of
//! its own, so that a sweep holds nobody up. What it finds is opened as an exception; it moves no money.
//!
//! | file | question |
//! |---|---|
//! | [`drift`] | what may be wrong, and what is merely under way? |
//! | [`statement`] | what did the switch's statement say? |
//! | [`payments`] | what do the three books say of each payment? |
//! | [`holds`] | what is held, and can all of it be? |
//! | [`unmatched`] | what belongs to no payment? |
//! | [`found`] | what becomes of what was found? |

pub mod drift;
pub mod found;
pub mod holds;
pub mod payments;
pub mod statement;
pub mod unmatched;

use crate::{Ledger, LedgerError};

/// One sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconciliationRunId(pub i64);

impl Ledger {
    /// Begins a sweep. What one that died left behind is removed.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn begin_reconciliation_run(&self) -> Result<ReconciliationRunId, LedgerError> {
        let mut tx = self.pool.begin().await?;
        sqlx::query!(
            "DELETE FROM running_workflows w USING reconciliations r
             WHERE r.reconciliation_id = w.reconciliation_id
               AND (r.finished_at IS NOT NULL OR r.started_at < clock_timestamp() - interval '1 day')"
        )
        .execute(&mut *tx)
        .await?;
        let id =
            sqlx::query_scalar!("INSERT INTO reconciliations DEFAULT VALUES RETURNING reconciliation_id")
                .fetch_one(&mut *tx)
                .await?;
        tx.commit().await?;
        Ok(ReconciliationRunId(id))
    }

    /// Notes that these workflows run.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn note_running(
        &self,
        sweep: ReconciliationRunId,
        workflow_ids: &[String],
    ) -> Result<(), LedgerError> {
        sqlx::query!(
            "INSERT INTO running_workflows (reconciliation_id, workflow_id) SELECT $1, unnest($2::text[])
             ON CONFLICT DO NOTHING",
            sweep.0,
            workflow_ids,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Stores what a sweep found, and forgets which workflows ran.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn finish_reconciliation_run(
        &self,
        sweep: ReconciliationRunId,
        report: &serde_json::Value,
    ) -> Result<(), LedgerError> {
        let mut tx = self.pool.begin().await?;
        sqlx::query!("DELETE FROM running_workflows WHERE reconciliation_id = $1", sweep.0)
            .execute(&mut *tx)
            .await?;
        sqlx::query!(
            "UPDATE reconciliations SET finished_at = clock_timestamp(), report = $2 WHERE reconciliation_id = $1",
            sweep.0,
            report,
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }
}
