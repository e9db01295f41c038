//! Checks which invariants hold for one payment, on the evidence of the ledger's records and of the switch's
//! answer. The numbers are those of ARCHITECTURE.md; invariants that concern more than one payment are not
//! checked here.
//!
//! | module | invariants |
//! |---|---|
//! | `money` | I1 to I4: journal, hold, debit, release |
//! | `records` | I5 to I11: final status, keys, attempts, runs, final state, callbacks, cause |

mod money;
mod records;

use payment_ledger::reads::explain::PaymentExplanation as LedgerExplanation;
use payment_ledger::reads::view::PaymentView;
use payment_protocol::state::FinalState;
use serde::Serialize;

use reconciliation::transfer::TransferView;

/// Whether an invariant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InvariantStatus {
    /// The evidence shows that the invariant holds.
    Holds,
    /// The evidence shows a violation.
    Violated,
    /// The evidence does not decide.
    Unknown,
}

impl InvariantStatus {
    /// The word for tables. A violation stands out.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Violated => "VIOLATED",
            Self::Unknown => "unknown",
        }
    }
}

/// One checked invariant of one payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct InvariantCheck {
    /// Number of the invariant, `I1` to `I11`.
    pub(crate) number: &'static str,
    /// The invariant.
    pub(crate) invariant: &'static str,
    /// Whether the invariant holds.
    pub(crate) status: InvariantStatus,
    /// The evidence for the status.
    pub(crate) evidence: String,
}

/// Status and evidence.
type Finding = (InvariantStatus, String);

fn holds_if(condition: bool, evidence: impl Into<String>) -> Finding {
    (if condition { InvariantStatus::Holds } else { InvariantStatus::Violated }, evidence.into())
}

fn unknown(evidence: impl Into<String>) -> Finding {
    (InvariantStatus::Unknown, evidence.into())
}

/// The ledger's records of one payment.
struct Records<'a> {
    explained: &'a LedgerExplanation,
    view: &'a PaymentView,
}

/// Checks every invariant that one payment's records can show.
pub(super) fn check(explained: &LedgerExplanation, switch: Option<&TransferView>) -> Vec<InvariantCheck> {
    let view = &explained.payment.view;
    let records = Records { explained, view };
    let checks = [
        ("I1", "holding and escrow equal the payment's entries", records.entries_add_up()),
        ("I2", "the hold is debited or released, never both", records.hold_closes_once()),
        ("I3", "debited only if the transfer settled", records.debited_only_if_settled(switch)),
        ("I4", "released only if the transfer can never settle", records.released_only_if_void(switch)),
        ("I5", "the first final status is kept", records.first_final_status_is_kept()),
        ("I6", "one effect per operation key", records.one_effect_per_key()),
        ("I7", "every submit attempt is recorded before it is sent", records.attempts_are_recorded()),
        ("I8", "one workflow run reserves", records.one_run_reserves()),
        ("I9", "the final state is complete and does not change", records.final_state_is_complete()),
        ("I10", "every callback reaches the inbox or an exception", records.callbacks_are_kept()),
        ("I11", "the first cause names the final state", records.first_cause_names_the_final_state()),
    ];
    checks
        .into_iter()
        .map(|(number, invariant, (status, evidence))| InvariantCheck { number, invariant, status, evidence })
        .collect()
}

impl Records<'_> {
    fn entries_of_kind(&self, kind: &str) -> usize {
        self.explained.journal.iter().filter(|entry| entry.kind == kind).count()
    }

    /// Number of debits, by the step or by a late debit.
    fn debits(&self) -> usize {
        self.entries_of_kind("debit") + self.entries_of_kind("late_debit")
    }

    /// Whether the customer, or the claims account, is charged now.
    fn is_debited(&self) -> bool {
        self.debits() > 0 && !self.is_returned()
    }

    /// Whether the whole amount was charged and came back.
    fn is_returned(&self) -> bool {
        self.debits() > 0 && self.view.returned_minor >= self.view.amount_minor
    }

    fn final_state(&self) -> Option<FinalState> {
        self.view.state.end()
    }

    fn hold_status(&self) -> Option<&str> {
        self.explained.hold.as_ref().map(|hold| hold.status.as_str())
    }

    fn is_final_status_by_decision(&self) -> bool {
        self.explained.payment.final_status_source.as_deref() == Some("decision")
    }

    fn is_operation_done(&self, key: &str) -> bool {
        self.explained
            .operations
            .iter()
            .any(|operation| operation.operation_key == key && operation.outcome == "done")
    }
}
