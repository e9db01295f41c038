//! One reconciliation run: reads the three sources and compares them.

use std::collections::{BTreeMap, BTreeSet};
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
use switch_client::client::STATEMENT_NOT_READ_TO_END;
use switch_client::config::SwitchOptions;
use workflow_api::PaymentWorkflows;

use crate::progress::{Position, ReconciliationProgress};
use crate::report::ReconciliationReport;

/// Payments, statement lines, callbacks or workflows per batch.
const BATCH: i64 = 1_000;
/// Upper bound of pages that one run reads of a statement; the next run continues. A statement whose positions lead back to
/// an earlier one has no end.
const STATEMENT_PAGES_MAX: usize = 10_000;

/// An attempt of a run that did not finish. The exceptions it opened stay open; another attempt may continue the run.
#[derive(Debug, thiserror::Error)]
pub enum ReconciliationError {
    /// The database is unavailable or refused a statement.
    #[error(
        "the reconciliation run ended early because the ledger failed; Temporal repeats a scheduled run, an operator repeats payctl reconcile"
    )]
    Ledger(#[from] LedgerError),
    /// The report cannot be written as JSON, or not be read again, which is a defect.
    #[error(
        "the report of the reconciliation run could not be written as JSON or read again; this is a software defect"
    )]
    Report(#[from] serde_json::Error),
    /// Another attempt has ended the run, and deleted its list of workflows: what this one finds without the list is no drift.
    #[error(
        "the attempt at the reconciliation run ended early because another one has ended the run; nothing is left to do"
    )]
    EndedByAnotherAttempt,
}

/// Called with the progress of a run.
pub type ProgressCallback<'a> = dyn Fn(&ReconciliationProgress) + Sync + 'a;

/// Compares the switch statements, the ledger and the running workflows.
#[derive(Clone)]
pub struct Reconciler {
    pub(crate) ledger: Ledger,
    switches: Vec<StatementSource>,
    pub(crate) temporal: PaymentWorkflows,
    pub(crate) batch: i64,
    records_returns: bool,
}

/// A switch and its client.
#[derive(Clone)]
struct StatementSource {
    name: SwitchName,
    has_statement: bool,
    client: Arc<dyn SwitchClient>,
}

impl Reconciler {
    /// A reconciler for the ledger, all switches that have or had payments, and Temporal.
    ///
    /// # Errors
    /// [`ClientError`] if the client of a switch cannot be created.
    pub fn new<'a>(
        ledger: Ledger,
        switches: impl IntoIterator<Item = (&'a SwitchOptions, &'a SwitchProfile)>,
        temporal: PaymentWorkflows,
    ) -> Result<Self, ClientError> {
        let switches = switches
            .into_iter()
            .map(|(options, profile)| {
                let client = options.kind.connect(options, profile)?;
                Ok(StatementSource {
                    name: profile.switch.clone(),
                    has_statement: profile.has_statement,
                    client,
                })
            })
            .collect::<Result<_, ClientError>>()?;
        Ok(Self { ledger, switches, temporal, batch: BATCH, records_returns: true })
    }

    /// The same reconciler with another number of payments, statement lines, callbacks or workflows per batch, by default
    /// 1,000.
    #[must_use]
    pub fn with_batch(self, batch: i64) -> Self {
        Self { batch, ..self }
    }

    /// The same reconciler, without recording the returns that the statements list: a payment with one that is not recorded yet is reported, and
    /// no drift is derived from it.
    #[must_use]
    pub fn without_recording_returns(self) -> Self {
        Self { records_returns: false, ..self }
    }

    /// Runs one reconciliation, over what is open and what changed in the last `window_s` seconds, or without one over everything.
    /// `progress` is called after each batch with the state from which [`Reconciler::resume`] continues.
    ///
    /// # Errors
    /// [`ReconciliationError`].
    pub async fn run(
        &self,
        tolerance: Tolerance,
        window_s: Option<i64>,
        progress: &ProgressCallback<'_>,
    ) -> Result<ReconciliationReport, ReconciliationError> {
        self.ledger.delete_old_reconciliation_lists().await?;
        let mut baseline = self.ledger.reconciliation_baseline().await?;
        let (run_id, window) = self.ledger.begin_reconciliation_run(window_s).await?;
        baseline.window = window;
        self.complete(ReconciliationProgress::new(run_id, tolerance, baseline), run_id, progress).await
    }

    /// Continues the run of an attempt that ended at `run` or later: what it did after that is done again.
    ///
    /// # Errors
    /// [`ReconciliationError`].
    pub async fn resume(
        &self,
        run: ReconciliationProgress,
        progress: &ProgressCallback<'_>,
    ) -> Result<ReconciliationReport, ReconciliationError> {
        // A list of workflows of its own: the earlier attempt may still be alive, and would delete the list of its run.
        // The earlier attempt may have ended the run, and its answer was lost.
        if let Some(report) = self.ledger.reconciliation_report(run.run_id()).await? {
            return Ok(serde_json::from_value(report)?);
        }
        let (list, _) = self.ledger.begin_reconciliation_run(None).await?;
        let report = self.complete(run, list, progress).await?;
        self.ledger.delete_running_workflows(list).await?;
        Ok(report)
    }

    /// Reads the sources and compares what is left, with `list` as the list of workflows.
    async fn complete(
        &self,
        mut run: ReconciliationProgress,
        list: ReconciliationRunId,
        progress: &ProgressCallback<'_>,
    ) -> Result<ReconciliationReport, ReconciliationError> {
        progress(&run);
        let statements = self.read_statements(&mut run.report).await?;
        run.report.new_lines = self.ledger.count_lines_after(run.baseline.last_line_id).await?;
        // Listed after the statements and before the payments, so that a workflow that ends meanwhile leaves no payment open
        // without one.
        let has_workflows = self.list_workflows(list, &mut run.report).await?;
        let sources = Sources { statements, workflows: has_workflows.then_some(list) };
        while run.position != Position::End {
            run.position = self.compare_batch(&sources, &mut run).await?;
            progress(&run);
        }
        let (run_id, report) = (run.run_id(), run.report);
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
    ) -> Result<Vec<SwitchName>, ReconciliationError> {
        let mut complete = Vec::new();
        for source in &self.switches {
            if !source.has_statement {
                report.add_not_compared(source.name.as_str(), "the switch has no statement");
                continue;
            }
            match self.read_statement(source).await? {
                Ok(()) => complete.push(source.name.clone()),
                Err(detail) => report.add_not_compared(source.name.as_str(), &detail),
            }
        }
        Ok(complete)
    }

    /// Stores the new lines of one statement; the inner error says why it was not read to its end.
    async fn read_statement(
        &self,
        source: &StatementSource,
    ) -> Result<Result<(), String>, ReconciliationError> {
        let mut cursor = self.ledger.statement_cursor(&source.name).await?;
        for _ in 0..STATEMENT_PAGES_MAX {
            let page = match source.client.statement_page(cursor.as_deref()).await {
                Ok(page) => page,
                Err(detail) => return Ok(Err(detail)),
            };
            match self.ledger.store_lines(&source.name, &page.lines).await {
                Ok(_) => {}
                Err(error @ LedgerError::Unavailable(_)) => return Err(error.into()),
                // The other switches' statements are read.
                Err(error) => return Ok(Err(format!("a page cannot be stored: {error}"))),
            }
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
        list: ReconciliationRunId,
        report: &mut ReconciliationReport,
    ) -> Result<bool, ReconciliationError> {
        report.workflows = 0;
        let listed = self.list_workflow_pages(list, report).await?;
        if let Err(detail) = &listed {
            report.add_not_compared("workflows", detail);
        }
        Ok(listed.is_ok())
    }

    async fn list_workflow_pages(
        &self,
        list: ReconciliationRunId,
        report: &mut ReconciliationReport,
    ) -> Result<Result<(), String>, ReconciliationError> {
        let mut running = match self.temporal.list_running().await {
            Ok(running) => running,
            Err(detail) => return Ok(Err(detail)),
        };
        loop {
            let page = match running.next_page(usize::try_from(self.batch).unwrap_or(usize::MAX)).await {
                Ok(page) => page,
                Err(detail) => return Ok(Err(detail)),
            };
            if page.is_empty() {
                return Ok(Ok(()));
            }
            report.workflows += page.len() as u64;
            self.ledger.record_running_workflows(list, &page).await?;
        }
    }

    /// Compares the batch at the run's position and adds it to the report; returns the next position.
    async fn compare_batch(
        &self,
        sources: &Sources,
        run: &mut ReconciliationProgress,
    ) -> Result<Position, ReconciliationError> {
        let (ledger, tolerance, batch) = (&self.ledger, run.report.tolerance, self.batch);
        let (run_id, window) = (run.run_id(), run.baseline.window);
        Ok(match (run.position.clone(), &window) {
            (Position::Journal, _) => {
                self.verify_journal(run).await?;
                window.map_or(Position::Payments(None), |window| Position::Entries(window.after_entry_id))
            }
            (Position::Entries(after), Some(window)) => {
                let page = ledger.payments_of_entries(run_id, window, after, batch).await?;
                self.compare_payments(sources, &page.payments, run).await?;
                page.next.map_or(Position::Listed(None), Position::Entries)
            }
            (Position::Listed(after), Some(window)) => {
                let payments = ledger.listed_payments(run_id, after.as_ref(), batch).await?;
                self.compare_payments(sources, &payments, run).await?;
                payments
                    .last()
                    .cloned()
                    .map_or(Position::Lines(window.after_line_id), |last| Position::Listed(Some(last)))
            }
            (Position::Lines(after), Some(window)) => {
                let page = ledger.payments_of_lines(run_id, window, after, batch).await?;
                self.compare_payments(sources, &page.payments, run).await?;
                page.next.map_or(Position::StatementLines(window.after_line_id), Position::Lines)
            }
            (Position::Payments(after), _) => {
                let payments = ledger.payments_after(after.as_ref(), batch).await?;
                self.compare_payments(sources, &payments, run).await?;
                payments
                    .last()
                    .cloned()
                    .map_or(Position::StatementLines(0), |last| Position::Payments(Some(last)))
            }
            // The others match no payment.
            (Position::StatementLines(after), _) => {
                let page = ledger.unmatched_statement_lines(after, batch).await?;
                run.report.lines += page.scanned as u64;
                self.open_exceptions(page.findings, run).await?;
                page.next.map_or(Position::Callbacks(None), Position::StatementLines)
            }
            (Position::Callbacks(after), _) => {
                let page = ledger.unmatched_callbacks(after.as_ref(), tolerance, batch).await?;
                self.open_exceptions(page.findings, run).await?;
                page.next.map_or(Position::Workflows(None), |next| Position::Callbacks(Some(next)))
            }
            (Position::Workflows(after), _) => {
                let Some(list) = sources.workflows else { return Ok(Position::End) };
                let page = ledger.unmatched_workflows(list, after.as_ref(), tolerance, batch).await?;
                self.open_exceptions(page.findings, run).await?;
                page.next.map_or(Position::End, |next| Position::Workflows(Some(next)))
            }
            (Position::End | Position::Entries(_) | Position::Listed(_) | Position::Lines(_), _) => {
                Position::End
            }
        })
    }

    /// Verifies the hash chain of the journal, and balances and holds against the entries.
    async fn verify_journal(&self, run: &mut ReconciliationProgress) -> Result<(), ReconciliationError> {
        let verified = match &run.baseline.window {
            Some(window) => self.ledger.verify_window(window).await?,
            None => self.ledger.verify_journal().await?,
        };
        // Several findings about one object are one exception.
        let mut findings = BTreeMap::new();
        for found in verified.findings {
            let origin = format!("{}:{}", found.kind, found.subject);
            let detail = format!("{} of {}: {}", found.kind, found.subject, found.detail);
            findings
                .entry(origin.clone())
                .or_insert_with(|| Finding::without_payment(Drift::JournalHashMismatch, origin, detail));
        }
        self.open_exceptions(findings.into_values().collect(), run).await
    }

    /// Compares payments, and adds them to the report. A payment that cannot be read, for example because a newer version wrote its
    /// row, is left out and hides no other: the report says so, and the log names each.
    async fn compare_payments(
        &self,
        sources: &Sources,
        batch: &[PaymentId],
        run: &mut ReconciliationProgress,
    ) -> Result<(), ReconciliationError> {
        if batch.is_empty() {
            return Ok(());
        }
        match self.compare_together(sources, batch, run).await {
            Err(ReconciliationError::Ledger(error)) if !matches!(error, LedgerError::Unavailable(_)) => {
                for payment_id in batch {
                    let alone = std::slice::from_ref(payment_id);
                    match self.compare_together(sources, alone, run).await {
                        Err(ReconciliationError::Ledger(error))
                            if !matches!(error, LedgerError::Unavailable(_)) =>
                        {
                            tracing::error!(
                                payment.id = payment_id.as_str(),
                                error = &error as &dyn std::error::Error,
                                "a reconciliation run could not read a payment, and goes on with the others"
                            );
                            run.report.add_not_compared("payments", &error.to_string());
                        }
                        compared => compared?,
                    }
                }
                Ok(())
            }
            compared => compared,
        }
    }

    /// Compares payments, and adds them to the report if all of them can be read.
    async fn compare_together(
        &self,
        sources: &Sources,
        batch: &[PaymentId],
        run: &mut ReconciliationProgress,
    ) -> Result<(), ReconciliationError> {
        let mut unrecorded = BTreeSet::new();
        if self.records_returns {
            // A return found here is recorded as one that the switch reports, so that the two open one exception.
            for (payment_id, report) in self.ledger.unrecorded_returns(batch).await? {
                self.ledger.record_returned(&payment_id, &report, FinalStatusSource::Statement).await?;
            }
            // The same for returns with an id of their own: each is booked once, whichever message reported it first.
            self.ledger.record_listed_returns(batch).await?;
        } else {
            unrecorded.extend(self.ledger.unrecorded_returns(batch).await?.into_iter().map(|(id, _)| id));
            unrecorded.extend(self.ledger.unrecorded_parts(batch).await?.into_iter().map(|(id, _)| id));
            run.report.unrecorded_returns += unrecorded.len() as u64;
        }
        let compared = self.ledger.compare(sources, batch).await?;
        let findings = compared
            .iter()
            .filter(|payment| !unrecorded.contains(&payment.payment_id))
            .flat_map(|payment| payment.findings(run.report.tolerance))
            .collect();
        self.open_exceptions(findings, run).await?;
        compared.iter().for_each(|payment| run.report.add_payment(payment));
        Ok(())
    }

    /// Opens exceptions for the findings and adds the findings to the report, unless the run has ended meanwhile. An attempt whose process was
    /// stopped goes on beside the one that replaced it.
    async fn open_exceptions(
        &self,
        findings: Vec<Finding>,
        run: &mut ReconciliationProgress,
    ) -> Result<(), ReconciliationError> {
        if !findings.is_empty() && self.ledger.reconciliation_report(run.run_id()).await?.is_some() {
            return Err(ReconciliationError::EndedByAnotherAttempt);
        }
        let known = self.ledger.open_findings(&findings).await?;
        for (finding, known) in findings.iter().zip(&known) {
            tracing::warn!(drift = finding.drift.as_str(), payment.id = finding.payment_id.as_ref().map(PaymentId::as_str),
                detail = finding.detail, exception = ?known, "a reconciliation run found drift (payctl exceptions)");
        }
        run.report.add_findings(findings, &known, &run.baseline);
        Ok(())
    }
}
