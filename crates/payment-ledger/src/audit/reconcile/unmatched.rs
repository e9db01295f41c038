//! What belongs to no payment: lines of a statement, callbacks, workflows.

use super::ReconciliationRunId;
use super::drift::{Drift, Tolerance};
use super::found::Finding;
use crate::{Ledger, LedgerError};

/// A page of something that is gone through, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched<After> {
    /// What belongs to no payment.
    pub findings: Vec<Finding>,
    /// How many were looked at.
    pub looked_at: usize,
    /// Where to go on; none at the end.
    pub next: Option<After>,
}

impl Ledger {
    /// Settled lines that are no payment's, among at most `limit` lines after `after`. Nothing is younger than the payments
    /// they are compared with, since an attempt is on record before it is sent.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn unmatched_statement_lines(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<Unmatched<i64>, LedgerError> {
        // OFFSET 0: line by line and by index. PostgreSQL would rather read all payments for each page of lines.
        let rows = sqlx::query!(
            r#"SELECT l.line_id, l.switch, l.transfer_id, l.reference, l.amount_minor, l.currency,
                      l.status = 'SETTLED'
                      AND NOT EXISTS (SELECT FROM payments p
                                      WHERE p.tx_id = split_part(l.reference, ':', 1) AND p.switch = l.switch
                                        AND l.reference = p.tx_id || ':submit' OFFSET 0)
                      AND NOT EXISTS (SELECT FROM submissions m JOIN payments p USING (payment_id)
                                      WHERE m.transfer_id = l.transfer_id AND p.switch = l.switch OFFSET 0) AS "is_stray!"
               FROM (SELECT * FROM statement_lines WHERE line_id > $1 ORDER BY line_id LIMIT $2) AS l
               ORDER BY l.line_id"#,
            after,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let looked_at = rows.len();
        let next = rows.last().map(|row| row.line_id).filter(|_| is_full(looked_at, limit));
        let findings = rows
            .into_iter()
            .filter(|row| row.is_stray)
            .map(|row| Finding {
                drift: Drift::TransferWithoutPayment,
                payment_id: None,
                origin: format!("{}:{}", row.switch, row.transfer_id),
                detail: format!(
                    "{} settled {} ({}): {} {}, and no payment was sent so",
                    row.switch,
                    row.transfer_id,
                    row.reference.as_deref().unwrap_or("without a reference"),
                    row.amount_minor,
                    row.currency
                ),
            })
            .collect();
        Ok(Unmatched { findings, looked_at, next })
    }

    /// Callbacks that belong to no payment, at most `limit` after the switch and event id `after`, older than the grace.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn unmatched_callbacks(
        &self,
        after: Option<&(String, String)>,
        tolerance: Tolerance,
        limit: i64,
    ) -> Result<Unmatched<(String, String)>, LedgerError> {
        let rows = sqlx::query!(
            "SELECT switch, event_id, reference, status, amount_minor, currency FROM switch_callbacks
             WHERE payment_id IS NULL AND (switch, event_id) > ($1, $2)
               AND received_at <= clock_timestamp() - $3 * interval '1 second'
             ORDER BY switch, event_id LIMIT $4",
            after.map_or("", |(switch, _)| switch),
            after.map_or("", |(_, event_id)| event_id),
            tolerance.grace_s as f64,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let looked_at = rows.len();
        let next = rows
            .last()
            .map(|row| (row.switch.clone(), row.event_id.clone()))
            .filter(|_| is_full(looked_at, limit));
        let findings = rows
            .into_iter()
            .map(|row| Finding {
                drift: Drift::UnmatchedCallback,
                payment_id: None,
                origin: format!("{}:{}", row.switch, row.event_id),
                detail: format!(
                    "{} of {} for {}: {} {}, which belongs to no payment",
                    row.status, row.switch, row.reference, row.amount_minor, row.currency
                ),
            })
            .collect();
        Ok(Unmatched { findings, looked_at, next })
    }

    /// Workflows that run without a payment to carry on, among at most `limit` after the workflow id `after`: there is no
    /// such payment, it ended longer ago than the grace, or another workflow has it.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn unmatched_workflows(
        &self,
        sweep: ReconciliationRunId,
        after: Option<&String>,
        tolerance: Tolerance,
        limit: i64,
    ) -> Result<Unmatched<String>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT w.workflow_id, p.payment_id AS "payment_id?", p.state AS "state?", p.workflow_id AS "its_workflow?",
                      (p.payment_id IS NULL
                       OR ((p.ended_at IS NOT NULL OR p.workflow_id <> w.workflow_id)
                           AND p.updated_at <= clock_timestamp() - $4 * interval '1 second')) AS "is_stray!"
               FROM (SELECT * FROM running_workflows
                     WHERE reconciliation_id = $1 AND workflow_id > $2 ORDER BY workflow_id LIMIT $3) AS w
               LEFT JOIN payments p ON p.payment_id = split_part(w.workflow_id, ':', 1)
               ORDER BY w.workflow_id"#,
            sweep.0,
            after.map_or("", String::as_str),
            limit,
            tolerance.grace_s as f64,
        )
        .fetch_all(&self.pool)
        .await?;
        let looked_at = rows.len();
        let next = rows.last().map(|row| row.workflow_id.clone()).filter(|_| is_full(looked_at, limit));
        let findings = rows
            .into_iter()
            .filter(|row| row.is_stray)
            .map(|row| Finding {
                drift: Drift::WorkflowWithoutPayment,
                payment_id: None,
                detail: match (&row.payment_id, &row.state, &row.its_workflow) {
                    (Some(id), Some(state), Some(its)) if *its == row.workflow_id => {
                        format!("{} runs, and {id} has ended: {state}", row.workflow_id)
                    }
                    (Some(id), Some(_), Some(its)) => {
                        format!("{} runs, and {id} is carried on by {its}", row.workflow_id)
                    }
                    _ => format!("{} runs, and there is no such payment", row.workflow_id),
                },
                origin: row.workflow_id,
            })
            .collect();
        Ok(Unmatched { findings, looked_at, next })
    }
}

fn is_full(rows: usize, limit: i64) -> bool {
    i64::try_from(rows).is_ok_and(|rows| rows >= limit)
}
