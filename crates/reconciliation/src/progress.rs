//! How far a run has come, so that another process can continue it.

use payment_ledger::audit::reconcile::{ReconciliationBaseline, ReconciliationRunId};
use payment_protocol::drift::Tolerance;
use payment_protocol::ids::PaymentId;
use serde::{Deserialize, Serialize};

use crate::report::ReconciliationReport;

/// The state of a run after a batch. Position and totals are stored together, so work that is repeated after an older progress
/// is not counted twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReconciliationProgress {
    /// The next batch.
    pub(crate) position: Position,
    /// What the ledger had before the run.
    pub(crate) baseline: ReconciliationBaseline,
    /// The report about everything before the position.
    pub(crate) report: ReconciliationReport,
}

impl ReconciliationProgress {
    pub(crate) fn new(
        run_id: ReconciliationRunId,
        tolerance: Tolerance,
        baseline: ReconciliationBaseline,
    ) -> Self {
        let report = ReconciliationReport::new(run_id.0, tolerance, baseline.window.as_ref());
        Self { position: Position::Journal, baseline, report }
    }

    /// The run in the ledger.
    #[must_use]
    pub fn run_id(&self) -> ReconciliationRunId {
        ReconciliationRunId(self.report.reconciliation_id)
    }
}

/// The next batch of the comparison. Reading the sources has no position: a continued run reads the new lines of the
/// statements and lists the workflows again, since both would otherwise be older than the payments compared with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Position {
    /// The journal, as a whole.
    Journal,
    /// Without a window: payments after this one.
    Payments(Option<PaymentId>),
    /// With a window: payments of the journal entries after this one.
    Entries(i64),
    /// With a window: listed payments after this one.
    Listed(Option<PaymentId>),
    /// With a window: payments of the statement lines after this one.
    Lines(i64),
    /// Statement lines after this one.
    StatementLines(i64),
    /// Callbacks after this switch and event id.
    Callbacks(Option<(String, String)>),
    /// Workflows after this one.
    Workflows(Option<String>),
    /// Nothing is left to compare.
    End,
}
