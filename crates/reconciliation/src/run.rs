//! One reconciliation_run through the three books.

use std::collections::BTreeMap;
use std::sync::Arc;

use payment_ledger::audit::reconcile::ReconciliationRunId;
use payment_ledger::audit::reconcile::drift::{Drift, Tolerance};
use payment_ledger::audit::reconcile::found::Finding;
use payment_ledger::audit::reconcile::payments::Sources;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::SwitchProfile;
use payment_protocol::ids::{PaymentId, SwitchName};
use switch_client::SwitchClient;
use switch_client::client::ClientError;
use switch_client::config::SwitchOptions;
use workflow_api::RunningWorkflows;

use crate::report::Report;

/// Payments, lines, callbacks or workflows of one batch.
const BATCH: i64 = 1_000;

/// A reconciliation_run that was not finished. What it had opened stays open; the next one begins anew.
#[derive(Debug, thiserror::Error)]
pub enum ReconciliationError {
    /// Our own books did not answer.
    #[error("the ledger did not answer the reconciliation_run")]
    Ledger(#[from] LedgerError),
    /// A defect.
    #[error("the report cannot be written")]
    Report(#[from] serde_json::Error),
}

/// Compares the three books.
#[derive(Clone)]
pub struct Reconciler {
    ledger: Ledger,
    switches: Vec<Source>,
    temporal: RunningWorkflows,
}

/// One switch.
#[derive(Clone)]
struct Source {
    name: SwitchName,
    has_statement: bool,
    client: Arc<SwitchClient>,
}

impl Reconciler {
    /// Over the ledger, the switches that have or had payments, and Temporal.
    ///
    /// # Errors
    /// [`ClientError`] when the client of a switch cannot be made.
    pub fn new<'a>(
        ledger: Ledger,
        switches: impl IntoIterator<Item = (&'a SwitchOptions, &'a SwitchProfile)>,
        temporal: RunningWorkflows,
    ) -> Result<Self, ClientError> {
        let switches = switches
            .into_iter()
            .map(|(options, profile)| {
                let client = Arc::new(SwitchClient::new(options, profile)?);
                Ok(Source { name: profile.switch.clone(), has_statement: profile.has_statement, client })
            })
            .collect::<Result<_, ClientError>>()?;
        Ok(Self { ledger, switches, temporal })
    }

    /// Sweeps. `progress` is told after each batch how many things were looked at so far.
    ///
    /// # Errors
    /// [`ReconciliationError`].
    pub async fn run(
        &self,
        tolerance: Tolerance,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Report, ReconciliationError> {
        let reconciliation_run = self.ledger.begin_reconciliation_run().await?;
        let mut report = Report::new(reconciliation_run.0, tolerance);
        let statements = self.read_statements(&mut report, progress).await?;
        // After the statements: a workflow that ends meanwhile is still open in none of the books that follow.
        let has_workflows = self.list_workflows(reconciliation_run, &mut report, progress).await?;
        let sources = Sources { statements, workflows: has_workflows.then_some(reconciliation_run) };
        self.chain(&mut report).await?;
        self.payments(&sources, tolerance, &mut report, progress).await?;
        self.unmatched(&sources, tolerance, &mut report, progress).await?;
        let stored = serde_json::to_value(&report)?;
        self.ledger.finish_reconciliation_run(reconciliation_run, &stored).await?;
        tracing::info!(
            reconciliation.id = reconciliation_run.0,
            payments = report.payments,
            lines = report.lines,
            drifts = report.drifts(),
            not_compared = report.not_compared.len(),
            "reconciled"
        );
        Ok(report)
    }

    /// Reads on in every statement; which were read to their end.
    async fn read_statements(
        &self,
        report: &mut Report,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<SwitchName>, ReconciliationError> {
        let mut whole = Vec::new();
        for source in &self.switches {
            if !source.has_statement {
                report.not_compared.push(format!("{}: it has no statement", source.name));
                continue;
            }
            let mut place = self.ledger.statement_cursor(&source.name).await?;
            loop {
                let page = match source.client.statement_page(place.as_deref()).await {
                    Ok(page) => page,
                    Err(detail) => {
                        report.not_compared.push(format!("{}: {detail}", source.name));
                        break;
                    }
                };
                report.new_lines += self.ledger.store_lines(&source.name, &page.lines).await?;
                progress(report.new_lines);
                place = page.lines.into_iter().next_back().map(|line| line.cursor).or(place);
                if page.is_last {
                    whole.push(source.name.clone());
                    break;
                }
            }
        }
        Ok(whole)
    }

    /// Notes which workflows run; false when Temporal did not say.
    async fn list_workflows(
        &self,
        reconciliation_run: ReconciliationRunId,
        report: &mut Report,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<bool, ReconciliationError> {
        let mut running = match self.temporal.list().await {
            Ok(running) => running,
            Err(detail) => {
                report.not_compared.push(format!("workflows: {detail}"));
                return Ok(false);
            }
        };
        loop {
            let page = match running.next_page(usize::try_from(BATCH).unwrap_or(usize::MAX)).await {
                Ok(page) => page,
                Err(detail) => {
                    report.not_compared.push(format!("workflows: {detail}"));
                    return Ok(false);
                }
            };
            if page.is_empty() {
                return Ok(true);
            }
            report.workflows += page.len() as u64;
            self.ledger.note_running(reconciliation_run, &page).await?;
            progress(report.workflows);
        }
    }

    /// Whether our own history is what was sealed, and balances and holds are what it says.
    async fn chain(&self, report: &mut Report) -> Result<(), ReconciliationError> {
        let verified = self.ledger.verify(None).await?;
        // One thing may be wrong in more than one way, and is one matter.
        let mut findings = BTreeMap::new();
        for found in verified.findings {
            let origin = format!("{}:{}", found.kind, found.of);
            findings.entry(origin.clone()).or_insert_with(|| Finding {
                drift: Drift::JournalHashMismatch,
                payment_id: None,
                origin,
                detail: format!("{} of {}: {}", found.kind, found.of, found.detail),
            });
        }
        self.open(findings.into_values().collect(), report).await
    }

    async fn payments(
        &self,
        sources: &Sources,
        tolerance: Tolerance,
        report: &mut Report,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), ReconciliationError> {
        let mut after: Option<PaymentId> = None;
        loop {
            let batch = self.ledger.payments_after(after.as_ref(), BATCH).await?;
            let Some(last) = batch.last() else { return Ok(()) };
            after = Some(last.clone());
            let mut findings = Vec::new();
            for compared in &self.ledger.compare(sources, &batch).await? {
                report.count(compared);
                findings.extend(compared.findings(tolerance));
            }
            self.open(findings, report).await?;
            progress(report.payments);
        }
    }

    async fn unmatched(
        &self,
        sources: &Sources,
        tolerance: Tolerance,
        report: &mut Report,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), ReconciliationError> {
        let mut after = Some(0);
        while let Some(place) = after {
            let page = self.ledger.unmatched_statement_lines(place, BATCH).await?;
            report.lines += page.looked_at as u64;
            self.open(page.findings, report).await?;
            progress(report.lines);
            after = page.next;
        }
        let mut after = None;
        loop {
            let page = self.ledger.unmatched_callbacks(after.as_ref(), tolerance, BATCH).await?;
            self.open(page.findings, report).await?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let Some(reconciliation_run) = sources.workflows else { return Ok(()) };
        let mut after = None;
        loop {
            let page =
                self.ledger.unmatched_workflows(reconciliation_run, after.as_ref(), tolerance, BATCH).await?;
            self.open(page.findings, report).await?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn open(&self, findings: Vec<Finding>, report: &mut Report) -> Result<(), ReconciliationError> {
        let known = self.ledger.open_findings(&findings).await?;
        for (finding, known) in findings.iter().zip(&known) {
            tracing::warn!(drift = finding.drift.as_str(), payment.id = finding.payment_id.as_ref().map(PaymentId::as_str),
                detail = finding.detail, exception = ?known, "drift");
        }
        report.note(findings, &known);
        Ok(())
    }
}
