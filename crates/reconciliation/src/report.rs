//! The result of a reconciliation run.

use std::collections::BTreeMap;

use payment_ledger::audit::reconcile::ReconciliationBaseline;
use payment_ledger::audit::reconcile::findings::{Finding, FindingOutcome};
use payment_ledger::audit::reconcile::payments::PaymentComparison;
use payment_ledger::audit::reconcile::window::ReconciliationWindow;
use payment_protocol::drift::{Drift, Tolerance};
use payment_protocol::facts::HoldStatus;
use serde::{Deserialize, Serialize};

/// Upper bound of findings in a report. The `exceptions` table has all of them.
pub const REPORTED_FINDINGS_MAX: usize = 200;
/// Upper bound of characters of a finding's detail in a report: the report is part of each heartbeat, and Temporal bounds those.
pub const REPORTED_DETAIL_CHARS_MAX: usize = 1_000;

/// Result of one reconciliation run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReconciliationReport {
    /// Number of the run.
    pub reconciliation_id: i64,
    /// Ages below which a difference counts as in progress.
    pub tolerance: Tolerance,
    /// What changed since then was compared, and what was open; `None`: everything. Absent in reports of earlier releases.
    #[serde(default)]
    pub window_began_at: Option<jiff::Timestamp>,
    /// Number of payments that were compared.
    pub payments: u64,
    /// Statement lines of all switches that were compared.
    pub lines: u64,
    /// Statement lines read for the first time since the run began.
    pub new_lines: u64,
    /// Running payment workflows.
    pub workflows: u64,
    /// Payments with a return that a statement lists and that is not recorded yet; always 0 of a run that records them. Absent in reports of
    /// earlier releases.
    #[serde(default)]
    pub unrecorded_returns: u64,
    /// Sources that could not be read, each with the reason. No drift was derived from them.
    pub not_compared: Vec<String>,
    /// Held and committed amounts by switch and currency.
    pub totals: Vec<SwitchTotals>,
    /// Number of findings without a closed exception, for every kind of drift.
    pub drift: BTreeMap<Drift, u64>,
    /// Unchanged findings whose exception an operator has closed.
    pub closed_before: u64,
    /// The first findings without a closed exception, at most [`REPORTED_FINDINGS_MAX`].
    pub findings: Vec<ReportedFinding>,
}

/// Amounts of the payments of one switch in one currency, in minor units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchTotals {
    /// Name of the switch.
    pub switch: String,
    /// ISO 4217 code.
    pub currency: String,
    /// Number of payments.
    pub payments: u64,
    /// Payments with open holds.
    pub held: PaymentSum,
    /// Payments debited and not returned.
    pub committed: PaymentSum,
    /// Settled according to the statement, with the amounts of our payments; `None` if the switch has no statement.
    pub settled_at_switch: Option<PaymentSum>,
}

/// Number and total amount of payments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentSum {
    /// Number of payments.
    pub count: u64,
    /// Total in minor units, as `i128` so that no sum overflows.
    pub amount_minor: i128,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedFinding {
    /// Kind of drift.
    pub drift: Drift,
    /// The payment; `None` if the finding matches no payment.
    pub payment_id: Option<String>,
    /// The open exception of this finding.
    pub exception_id: i64,
    /// Whether the exception was opened since the run began.
    pub is_new: bool,
    /// The compared values, for operators; at most [`REPORTED_DETAIL_CHARS_MAX`] characters.
    pub detail: String,
    /// Operator actions that are allowed, in the spelling of `payctl decide`.
    pub allowed: Vec<String>,
}

impl ReconciliationReport {
    pub(crate) fn new(
        reconciliation_id: i64,
        tolerance: Tolerance,
        window: Option<&ReconciliationWindow>,
    ) -> Self {
        Self {
            reconciliation_id,
            tolerance,
            window_began_at: window.map(|window| window.since),
            payments: 0,
            lines: 0,
            new_lines: 0,
            workflows: 0,
            unrecorded_returns: 0,
            not_compared: Vec::new(),
            totals: Vec::new(),
            drift: Drift::ALL.iter().map(|drift| (*drift, 0)).collect(),
            closed_before: 0,
            findings: Vec::new(),
        }
    }

    /// Number of findings without a closed exception.
    #[must_use]
    pub fn drift_count(&self) -> u64 {
        self.drift.values().sum()
    }

    /// Adds a source that could not be read; once, if several attempts of the run could not read it.
    pub(crate) fn add_not_compared(&mut self, source: &str, reason: &str) {
        let prefix = format!("{source}: ");
        if !self.not_compared.iter().any(|entry| entry.starts_with(&prefix)) {
            self.not_compared.push(prefix + reason);
        }
    }

    /// Adds a compared payment to the totals.
    pub(crate) fn add_payment(&mut self, compared: &PaymentComparison) {
        self.payments += 1;
        let index = self
            .totals
            .iter()
            .position(|totals| totals.switch == compared.switch && totals.currency == compared.currency);
        let index = index.unwrap_or_else(|| {
            self.totals.push(SwitchTotals {
                switch: compared.switch.clone(),
                currency: compared.currency.clone(),
                payments: 0,
                held: PaymentSum::default(),
                committed: PaymentSum::default(),
                settled_at_switch: None,
            });
            self.totals.len() - 1
        });
        let Some(totals) = self.totals.get_mut(index) else { return };
        totals.payments += 1;
        let seen = &compared.evidence;
        totals.held.add(u64::from(seen.hold == Some(HoldStatus::Open)), compared.amount_minor);
        totals.committed.add(u64::try_from(seen.debits).unwrap_or(0), compared.amount_minor);
        if let Some(settled) = seen.settled {
            let at_switch = totals.settled_at_switch.get_or_insert_default();
            at_switch.add(u64::try_from(settled).unwrap_or(0), compared.amount_minor);
        }
    }

    /// Adds findings with the state of their exceptions.
    pub(crate) fn add_findings(
        &mut self,
        findings: Vec<Finding>,
        known: &[FindingOutcome],
        baseline: &ReconciliationBaseline,
    ) {
        for (finding, known) in findings.into_iter().zip(known) {
            let exception_id = match *known {
                FindingOutcome::Opened(id) | FindingOutcome::AlreadyOpen(id) => id,
                FindingOutcome::AlreadyClosed(_) => {
                    self.closed_before += 1;
                    continue;
                }
            };
            *self.drift.entry(finding.drift).or_default() += 1;
            if self.findings.len() < REPORTED_FINDINGS_MAX {
                self.findings.push(ReportedFinding {
                    drift: finding.drift,
                    payment_id: finding.payment_id.map(|id| id.to_string()),
                    exception_id,
                    // An earlier attempt of this run may have opened it.
                    is_new: exception_id > baseline.last_exception_id,
                    detail: finding.detail.chars().take(REPORTED_DETAIL_CHARS_MAX).collect(),
                    allowed: finding.allowed.iter().map(|action| action.as_str().replace('_', "-")).collect(),
                });
            }
        }
    }
}

impl PaymentSum {
    fn add(&mut self, count: u64, amount_minor: i64) {
        self.count += count;
        self.amount_minor += i128::from(amount_minor) * i128::from(count);
    }
}
