//! The check after a restored backup, or a failover to a standby that lacked confirmed commits: marks the open payments, then
//! reconciles, and adds what a reconciliation run does not compare.

use jiff::Timestamp;
use payment_ledger::audit::reconcile::ReconciliationBaseline;
use payment_ledger::audit::reconcile::restore::{EndedWithoutAttempt, UnrecordedTransfer};
use payment_protocol::drift::Tolerance;
use serde::Serialize;

use crate::report::{REPORTED_FINDINGS_MAX, ReconciliationReport};
use crate::run::{Reconciler, ReconciliationError};

/// Result of the check.
#[derive(Clone, Debug, Serialize)]
pub struct RestoreReport {
    /// The instant up to which the database is known to be complete.
    pub since: Timestamp,
    /// Open payments that were marked now.
    pub marked: u64,
    /// Number of transfers in the statements whose payment has no recorded attempt.
    pub transfers_without_attempt: u64,
    /// The first of these transfers, at most [`REPORTED_FINDINGS_MAX`].
    pub first_transfers_without_attempt: Vec<UnrecordedTransfer>,
    /// The first payments that have ended without a recorded attempt since the instant, at most [`REPORTED_FINDINGS_MAX`].
    pub ended_without_attempt: Vec<EndedWithoutAttempt>,
    /// The reconciliation run; its findings include workflows that have ended and whose payment has no row.
    pub reconciliation: ReconciliationReport,
}

impl RestoreReport {
    /// Number of differences: transfers without an attempt, and drift.
    #[must_use]
    pub fn difference_count(&self) -> u64 {
        self.transfers_without_attempt + self.reconciliation.drift_count()
    }
}

impl Reconciler {
    /// Marks every open payment, so that nothing that its record lacks is taken for what never happened, and lists what differs.
    /// `since`: an instant up to which the database is known to be complete. May be repeated.
    ///
    /// # Errors
    /// [`ReconciliationError`]. What was marked before stays marked.
    pub async fn check_restore(&self, since: Timestamp) -> Result<RestoreReport, ReconciliationError> {
        // First, since it protects: the comparison may take long.
        let marked = self.ledger.mark_open_payments(since).await?;
        let baseline = self.ledger.reconciliation_baseline().await?;
        let mut report = RestoreReport {
            since,
            marked,
            transfers_without_attempt: 0,
            first_transfers_without_attempt: Vec::new(),
            ended_without_attempt: self
                .ledger
                .ended_without_attempt(since, i64::try_from(REPORTED_FINDINGS_MAX).unwrap_or(i64::MAX))
                .await?,
            // Reads the statements from where the surviving record of them ends.
            reconciliation: self.run(Tolerance::default(), None, &|_| ()).await?,
        };
        self.find_transfers_without_attempt(&mut report).await?;
        self.find_ended_workflows(&mut report, &baseline).await?;
        Ok(report)
    }

    async fn find_transfers_without_attempt(
        &self,
        report: &mut RestoreReport,
    ) -> Result<(), ReconciliationError> {
        let Some(first) = self.ledger.first_line_since(report.since).await? else { return Ok(()) };
        let mut after = Some(first - 1);
        while let Some(line) = after {
            let page = self.ledger.transfers_without_attempt(line, self.batch).await?;
            report.transfers_without_attempt += page.transfers.len() as u64;
            let left = REPORTED_FINDINGS_MAX.saturating_sub(report.first_transfers_without_attempt.len());
            report.first_transfers_without_attempt.extend(page.transfers.into_iter().take(left));
            after = page.last;
        }
        Ok(())
    }

    /// Opens an exception for each workflow that has ended and whose payment has no row. After the run, which lists the running
    /// ones: a workflow that ends meanwhile is in one of the lists.
    async fn find_ended_workflows(
        &self,
        report: &mut RestoreReport,
        baseline: &ReconciliationBaseline,
    ) -> Result<(), ReconciliationError> {
        let mut ended = match self.temporal.list_ended(report.since).await {
            Ok(ended) => ended,
            Err(detail) => {
                report.reconciliation.add_not_compared("ended workflows", &detail);
                return Ok(());
            }
        };
        loop {
            let page = match ended.next_page(usize::try_from(self.batch).unwrap_or(usize::MAX)).await {
                Ok(page) => page,
                Err(detail) => {
                    report.reconciliation.add_not_compared("ended workflows", &detail);
                    return Ok(());
                }
            };
            if page.is_empty() {
                return Ok(());
            }
            let findings = self.ledger.ended_workflows_without_payment(&page).await?;
            let known = self.ledger.open_findings(&findings).await?;
            report.reconciliation.add_findings(findings, &known, baseline);
        }
    }
}
