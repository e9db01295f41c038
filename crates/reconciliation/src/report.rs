//! What a reconciliation_run found.

use std::collections::BTreeMap;

use payment_ledger::audit::reconcile::drift::{Drift, Tolerance};
use payment_ledger::audit::reconcile::findings::{Finding, FindingOutcome};
use payment_ledger::audit::reconcile::payments::PaymentComparison;
use payment_protocol::facts::HoldStatus;
use serde::{Deserialize, Serialize};

/// Findings that a report lists in full; the exceptions have all of them.
pub const LISTED_MAX: usize = 200;

/// What one reconciliation_run saw and found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its number.
    pub reconciliation_id: i64,
    /// How old something had to be to count as wrong.
    pub tolerance: Tolerance,
    /// Payments that were compared.
    pub payments: u64,
    /// Lines of all statements.
    pub lines: u64,
    /// Of those, lines that were read for the first time.
    pub new_lines: u64,
    /// Payment workflows that ran.
    pub workflows: u64,
    /// Books that could not be read, and why. Nothing was concluded from them.
    pub not_compared: Vec<String>,
    /// What is held and what is committed, by switch and currency.
    pub totals: Vec<Totals>,
    /// How often each kind of drift was found and is not closed; every kind is there.
    pub drift: BTreeMap<Drift, u64>,
    /// Findings that a person has closed and that are still so.
    pub closed_before: u64,
    /// The first findings that are not closed, at most [`LISTED_MAX`].
    pub findings: Vec<Listed>,
}

/// Money of the payments of one switch in one currency, in minor units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// The switch.
    pub switch: String,
    /// ISO 4217 code.
    pub currency: String,
    /// Payments.
    pub payments: u64,
    /// Set aside for payments that may still go either way.
    pub held: Sum,
    /// Debited and not given back.
    pub committed: Sum,
    /// Settled at the switch, as our payments have the amounts. None of a switch without a statement.
    pub settled_at_switch: Option<Sum>,
}

/// A number of payments and what they amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// In minor units; wide enough for any number of payments.
    pub amount_minor: i128,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// What is wrong.
    pub drift: Drift,
    /// With which payment.
    pub payment_id: Option<String>,
    /// The exception that is open for it.
    pub exception_id: i64,
    /// Whether this reconciliation_run opened it.
    pub is_new: bool,
    /// What the books say.
    pub detail: String,
    /// What people may do, as it is typed at `payctl decide`.
    pub allowed: Vec<String>,
}

impl Report {
    pub(crate) fn new(reconciliation_id: i64, tolerance: Tolerance) -> Self {
        Self {
            reconciliation_id,
            tolerance,
            payments: 0,
            lines: 0,
            new_lines: 0,
            workflows: 0,
            not_compared: Vec::new(),
            totals: Vec::new(),
            drift: Drift::ALL.iter().map(|drift| (*drift, 0)).collect(),
            closed_before: 0,
            findings: Vec::new(),
        }
    }

    /// Things that are wrong and that nobody has closed.
    #[must_use]
    pub fn drifts(&self) -> u64 {
        self.drift.values().sum()
    }

    pub(crate) fn count(&mut self, compared: &PaymentComparison) {
        self.payments += 1;
        let place = self
            .totals
            .iter()
            .position(|totals| totals.switch == compared.switch && totals.currency == compared.currency);
        let place = place.unwrap_or_else(|| {
            self.totals.push(Totals {
                switch: compared.switch.clone(),
                currency: compared.currency.clone(),
                payments: 0,
                held: Sum::default(),
                committed: Sum::default(),
                settled_at_switch: None,
            });
            self.totals.len() - 1
        });
        let Some(totals) = self.totals.get_mut(place) else { return };
        totals.payments += 1;
        let seen = &compared.evidence;
        totals.held.add(u64::from(seen.hold == Some(HoldStatus::Open)), compared.amount_minor);
        totals.committed.add(u64::try_from(seen.debits).unwrap_or(0), compared.amount_minor);
        if let Some(settled) = seen.settled {
            let at_switch = totals.settled_at_switch.get_or_insert_default();
            at_switch.add(u64::try_from(settled).unwrap_or(0), compared.amount_minor);
        }
    }

    pub(crate) fn note(&mut self, findings: Vec<Finding>, known: &[FindingOutcome]) {
        for (finding, known) in findings.into_iter().zip(known) {
            let (exception_id, is_new) = match *known {
                FindingOutcome::Opened(id) => (id, true),
                FindingOutcome::AlreadyOpen(id) => (id, false),
                FindingOutcome::AlreadyClosed(_) => {
                    self.closed_before += 1;
                    continue;
                }
            };
            *self.drift.entry(finding.drift).or_default() += 1;
            if self.findings.len() < LISTED_MAX {
                self.findings.push(Listed {
                    drift: finding.drift,
                    payment_id: finding.payment_id.map(|id| id.to_string()),
                    exception_id,
                    is_new,
                    detail: finding.detail,
                    allowed: finding
                        .drift
                        .allowed()
                        .iter()
                        .map(|deed| deed.as_str().replace('_', "-"))
                        .collect(),
                });
            }
        }
    }
}

impl Sum {
    fn add(&mut self, count: u64, amount_minor: i64) {
        self.count += count;
        self.amount_minor += i128::from(amount_minor) * i128::from(count);
    }
}
