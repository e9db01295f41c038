//! One reconciliation run: reads the three sources and compares them.

use std::collections::BTreeMap;
use std::sync::Arc;

use payment_ledger::audit::reconcile::ReconciliationRunId;
use payment_ledger::audit::reconcile::findings::Finding;
use payment_ledger::audit::reconcile::payments::Sources;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::SwitchProfile;
use payment_protocol::drift::{Drift, Tolerance};
use payment_protocol::ids::{PaymentId, SwitchName};
use switch_client::SwitchClient;
use switch_client::client::ClientError;
use switch_client::config::SwitchOptions;
use switch_client::statement::STATEMENT_NOT_READ_TO_END;
use workflow_api::RunningWorkflows;

use crate::report::ReconciliationReport;

/// Payments, statement lines, callbacks or workflows per batch.
const BATCH: i64 = 1_000;
/// Upper bound of pages that one run reads of a statement; the next run continues. A statement whose positions lead back to
/// an earlier one has no end.
const STATEMENT_PAGES_MAX: usize = 10_000;

/// A run that did not finish. The exceptions it opened stay open; the next run starts from the beginning.
#[derive(Debug, thiserror::Error)]
pub enum ReconciliationError {
    /// The database is unavailable or refused a statement.
    #[error(
        "the reconciliation run ended early because the ledger failed; Temporal repeats a scheduled run, an operator repeats payctl reconcile"
    )]
    Ledger(#[from] LedgerError),
    /// The report cannot be serialized, which is a defect.
    #[error(
        "the report of the reconciliation run could not be serialized as JSON; this is a software defect"
    )]
    Report(#[from] serde_json::Error),
}

/// Compares the switch statements, the ledger and the running workflows.
#[derive(Clone)]
pub struct Reconciler {
    ledger: Ledger,
    switches: Vec<StatementSource>,
    temporal: RunningWorkflows,
}

/// A switch and its client.
#[derive(Clone)]
struct StatementSource {
    name: SwitchName,
    has_statement: bool,
    client: Arc<SwitchClient>,
}

impl Reconciler {
    /// A reconciler for the ledger, all switches that have or had payments, and Temporal.
    ///
    /// # Errors
    /// [`ClientError`] if the client of a switch cannot be created.
    pub fn new<'a>(
        ledger: Ledger,
        switches: impl IntoIterator<Item = (&'a SwitchOptions, &'a SwitchProfile)>,
        temporal: RunningWorkflows,
    ) -> Result<Self, ClientError> {
        let switches = switches
            .into_iter()
            .map(|(options, profile)| {
                let client = Arc::new(SwitchClient::new(options, profile)?);
                Ok(StatementSource {
                    name: profile.switch.clone(),
                    has_statement: profile.has_statement,
                    client,
                })
            })
            .collect::<Result<_, ClientError>>()?;
        Ok(Self { ledger, switches, temporal })
    }

    /// Runs one reconciliation. `progress` is called after each batch with the number of items processed so far.
    ///
    /// # Errors
    /// [`ReconciliationError`].
    pub async fn run(
        &self,
        tolerance: Tolerance,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<ReconciliationReport, ReconciliationError> {
        let run_id = self.ledger.begin_reconciliation_run().await?;
        let mut report = ReconciliationReport::new(run_id.0, tolerance);
        let statements = self.read_statements(&mut report, progress).await?;
        // Listed after the statements and before the payments, so that a workflow that ends meanwhile leaves no payment open
        // without one.
        let has_workflows = self.list_workflows(run_id, &mut report, progress).await?;
        let sources = Sources { statements, workflows: has_workflows.then_some(run_id) };
        self.verify_journal(&mut report).await?;
        self.compare_payments(&sources, tolerance, &mut report, progress).await?;
        self.find_unmatched(&sources, tolerance, &mut report, progress).await?;
        let stored = serde_json::to_value(&report)?;
        self.ledger.finish_reconciliation_run(run_id, &stored).await?;
        tracing::info!(
            reconciliation.id = run_id.0,
            payments = report.payments,
            lines = report.lines,
            drift = report.drift_count(),
            not_compared = report.not_compared.len(),
            "a reconciliation run compared the ledger, the switch statements and the workflows"
        );
        Ok(report)
    }

    /// Stores the new lines of every statement; returns the switches whose statement was read to the end.
    async fn read_statements(
        &self,
        report: &mut ReconciliationReport,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<SwitchName>, ReconciliationError> {
        let mut complete = Vec::new();
        for source in &self.switches {
            if !source.has_statement {
                report.not_compared.push(format!("{}: the switch has no statement", source.name));
                continue;
            }
            match self.read_statement(source, report, progress).await? {
                Ok(()) => complete.push(source.name.clone()),
                Err(detail) => report.not_compared.push(format!("{}: {detail}", source.name)),
            }
        }
        Ok(complete)
    }

    /// Stores the new lines of one statement; the inner error says why it was not read to its end.
    async fn read_statement(
        &self,
        source: &StatementSource,
        report: &mut ReconciliationReport,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Result<(), String>, ReconciliationError> {
        let mut cursor = self.ledger.statement_cursor(&source.name).await?;
        for _ in 0..STATEMENT_PAGES_MAX {
            let page = match source.client.statement_page(cursor.as_deref()).await {
                Ok(page) => page,
                Err(detail) => return Ok(Err(detail)),
            };
            report.new_lines += self.ledger.store_lines(&source.name, &page.lines).await?;
            progress(report.new_lines);
            cursor = page.lines.into_iter().next_back().map(|line| line.cursor).or(cursor);
            if page.is_last {
                return Ok(Ok(()));
            }
        }
        Ok(Err(STATEMENT_NOT_READ_TO_END.into()))
    }

    /// Stores the ids of the running workflows; `false` if Temporal did not list all of them.
    async fn list_workflows(
        &self,
        run_id: ReconciliationRunId,
        report: &mut ReconciliationReport,
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
            self.ledger.record_running_workflows(run_id, &page).await?;
            progress(report.workflows);
        }
    }

    /// Verifies the hash chain of the journal, and balances and holds against the entries.
    async fn verify_journal(&self, report: &mut ReconciliationReport) -> Result<(), ReconciliationError> {
        let verified = self.ledger.verify(None).await?;
        // Several findings about one object are one exception.
        let mut findings = BTreeMap::new();
        for found in verified.findings {
            let origin = format!("{}:{}", found.kind, found.subject);
            findings.entry(origin.clone()).or_insert_with(|| Finding {
                drift: Drift::JournalHashMismatch,
                payment_id: None,
                origin,
                detail: format!("{} of {}: {}", found.kind, found.subject, found.detail),
            });
        }
        self.open_exceptions(findings.into_values().collect(), report).await
    }

    async fn compare_payments(
        &self,
        sources: &Sources,
        tolerance: Tolerance,
        report: &mut ReconciliationReport,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), ReconciliationError> {
        let mut after: Option<PaymentId> = None;
        loop {
            let batch = self.ledger.payments_after(after.as_ref(), BATCH).await?;
            let Some(last) = batch.last() else { return Ok(()) };
            after = Some(last.clone());
            // A return found here is recorded as one that the switch reports, so that it opens one exception, whoever was first.
            for (payment_id, report) in self.ledger.unrecorded_returns(&batch).await? {
                self.ledger.record_returned(&payment_id, &report, FinalStatusSource::Statement).await?;
            }
            let mut findings = Vec::new();
            for compared in &self.ledger.compare(sources, &batch).await? {
                report.add_payment(compared);
                findings.extend(compared.findings(tolerance));
            }
            self.open_exceptions(findings, report).await?;
            progress(report.payments);
        }
    }

    /// Finds statement lines, callbacks and workflows without a payment.
    async fn find_unmatched(
        &self,
        sources: &Sources,
        tolerance: Tolerance,
        report: &mut ReconciliationReport,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), ReconciliationError> {
        let mut after = Some(0);
        while let Some(line_id) = after {
            let page = self.ledger.unmatched_statement_lines(line_id, BATCH).await?;
            report.lines += page.scanned as u64;
            self.open_exceptions(page.findings, report).await?;
            progress(report.lines);
            after = page.next;
        }
        let mut after = None;
        loop {
            let page = self.ledger.unmatched_callbacks(after.as_ref(), tolerance, BATCH).await?;
            self.open_exceptions(page.findings, report).await?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let Some(run_id) = sources.workflows else { return Ok(()) };
        let mut after = None;
        loop {
            let page = self.ledger.unmatched_workflows(run_id, after.as_ref(), tolerance, BATCH).await?;
            self.open_exceptions(page.findings, report).await?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Opens exceptions for the findings and adds the findings to the report.
    async fn open_exceptions(
        &self,
        findings: Vec<Finding>,
        report: &mut ReconciliationReport,
    ) -> Result<(), ReconciliationError> {
        let known = self.ledger.open_findings(&findings).await?;
        for (finding, known) in findings.iter().zip(&known) {
            tracing::warn!(drift = finding.drift.as_str(), payment.id = finding.payment_id.as_ref().map(PaymentId::as_str),
                detail = finding.detail, exception = ?known, "a reconciliation run found drift (payctl exceptions)");
        }
        report.add_findings(findings, &known);
        Ok(())
    }
}
