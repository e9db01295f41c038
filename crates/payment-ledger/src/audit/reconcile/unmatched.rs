//! Statement lines, callbacks and workflows without a payment.

use super::ReconciliationRunId;
use super::findings::Finding;
use crate::amount_text::amount;
use crate::{Ledger, LedgerError};
use payment_protocol::drift::{Drift, Tolerance};

/// One page of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched<After> {
    /// Findings of the page.
    pub findings: Vec<Finding>,
    /// Rows scanned.
    pub scanned: usize,
    /// Where the next page begins; `None` at the end.
    pub next: Option<After>,
}

impl Ledger {
    /// Settled lines without a payment, among at most `limit` lines after `after`. The payments are never older than the lines,
    /// since an attempt is recorded before it is sent. The switch's id of a transfer names a payment only on a line without a reference:
    /// a switch may use an id again. A line that repeats an earlier one is left out.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn unmatched_statement_lines(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<Unmatched<i64>, LedgerError> {
        // OFFSET 0 keeps the planner at index scans per line; it would otherwise read all payments for each page.
        let rows = sqlx::query!(
            r#"SELECT l.line_id, l.switch, l.transfer_id, l.reference, l.amount_minor, l.currency,
                      l.status = 'SETTLED'
                      AND NOT EXISTS (SELECT FROM payments p
                                      WHERE p.tx_id = split_part(l.reference, ':', 1) AND p.switch = l.switch
                                        AND l.reference = p.tx_id || ':submit' OFFSET 0)
                      AND NOT EXISTS (SELECT FROM payments p
                                      WHERE p.rail_id = l.reference AND p.switch = l.switch OFFSET 0)
                      AND NOT EXISTS (SELECT FROM submissions m JOIN payments p USING (payment_id)
                                      WHERE m.transfer_id = l.transfer_id AND l.reference IS NULL
                                        AND p.switch = l.switch OFFSET 0)
                      AND NOT EXISTS (SELECT FROM statement_lines earlier
                                      WHERE earlier.switch = l.switch AND earlier.transfer_id = l.transfer_id
                                        AND earlier.line_id < l.line_id AND earlier.status = l.status
                                        AND earlier.reference IS NOT DISTINCT FROM l.reference
                                        AND earlier.amount_minor = l.amount_minor AND earlier.currency = l.currency OFFSET 0)
                          AS "is_unmatched!"
               FROM (SELECT * FROM statement_lines WHERE line_id > $1 ORDER BY line_id LIMIT $2) AS l
               ORDER BY l.line_id"#,
            after,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let scanned = rows.len();
        let next = rows.last().map(|row| row.line_id).filter(|_| is_full(scanned, limit));
        let findings = rows
            .into_iter()
            .filter(|row| row.is_unmatched)
            .map(|row| {
                Finding::without_payment(
                    Drift::TransferWithoutPayment,
                    match &row.reference {
                        Some(reference) => format!("{}:{}:{reference}", row.switch, row.transfer_id),
                        None => format!("{}:{}", row.switch, row.transfer_id),
                    },
                    format!(
                        "{} settled transfer {} ({}) of {}, which matches no payment",
                        row.switch,
                        row.transfer_id,
                        row.reference.as_deref().unwrap_or("no reference"),
                        amount(row.amount_minor, &row.currency)
                    ),
                )
            })
            .collect();
        Ok(Unmatched { findings, scanned, next })
    }

    /// Callbacks without a payment, at most `limit` after the switch and event id `after`, older than the grace.
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
        let scanned = rows.len();
        let next = rows
            .last()
            .map(|row| (row.switch.clone(), row.event_id.clone()))
            .filter(|_| is_full(scanned, limit));
        let findings = rows
            .into_iter()
            .map(|row| {
                Finding::without_payment(
                    Drift::UnmatchedCallback,
                    format!("{}:{}", row.switch, row.event_id),
                    format!(
                        "{} from {} for reference {} of {}, which matches no payment",
                        row.status,
                        row.switch,
                        row.reference,
                        amount(row.amount_minor, &row.currency)
                    ),
                )
            })
            .collect();
        Ok(Unmatched { findings, scanned, next })
    }

    /// Running workflows without an open payment, among at most `limit` after the workflow id `after`: the payment is unknown, ended
    /// longer ago than the grace, or has another workflow.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn unmatched_workflows(
        &self,
        run: ReconciliationRunId,
        after: Option<&String>,
        tolerance: Tolerance,
        limit: i64,
    ) -> Result<Unmatched<String>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT w.workflow_id, p.payment_id AS "payment_id?", p.state AS "state?", p.workflow_id AS "its_workflow?",
                      (p.payment_id IS NULL
                       OR ((p.ended_at IS NOT NULL OR p.workflow_id <> w.workflow_id)
                           AND p.updated_at <= clock_timestamp() - $4 * interval '1 second')) AS "is_unmatched!"
               FROM (SELECT * FROM running_workflows
                     WHERE reconciliation_id = $1 AND workflow_id > $2 ORDER BY workflow_id LIMIT $3) AS w
               LEFT JOIN payments p ON p.payment_id = split_part(w.workflow_id, ':', 1)
               ORDER BY w.workflow_id"#,
            run.0,
            after.map_or("", String::as_str),
            limit,
            tolerance.grace_s as f64,
        )
        .fetch_all(&self.pool)
        .await?;
        let scanned = rows.len();
        let next = rows.last().map(|row| row.workflow_id.clone()).filter(|_| is_full(scanned, limit));
        let findings = rows
            .into_iter()
            .filter(|row| row.is_unmatched)
            .map(|row| {
                let detail = match (&row.payment_id, &row.state, &row.its_workflow) {
                    (Some(id), Some(state), Some(its)) if *its == row.workflow_id => {
                        format!(
                            "workflow {} is running, but payment {id} has ended: {state}",
                            row.workflow_id
                        )
                    }
                    (Some(id), Some(_), Some(its)) => {
                        format!(
                            "workflow {} is running, but payment {id} has workflow {its}",
                            row.workflow_id
                        )
                    }
                    _ => format!("workflow {} is running without a payment", row.workflow_id),
                };
                Finding::without_payment(Drift::WorkflowWithoutPayment, row.workflow_id, detail)
            })
            .collect();
        Ok(Unmatched { findings, scanned, next })
    }
}

fn is_full(rows: usize, limit: i64) -> bool {
    i64::try_from(rows).is_ok_and(|rows| rows >= limit)
}
