//! Drift between ledger, switch statements and workflows. A difference that a payment in progress explains is no drift. Pure
//! functions: they map the evidence about one payment to kinds of drift.

use crate::PaymentState;
use crate::cause::OperatorReason;
use crate::facts::HoldStatus;
use crate::state::text_enum;
use serde::{Deserialize, Serialize};

use crate::action::{Action, Correction, OperatorAction};

text_enum!(
    /// Kinds of drift, in the order of reports.
    Drift {
        /// Sent or reserved without a hold.
        MissingHold = "missing_hold",
        /// An open hold of an ended payment, or without a reserve in the journal.
        OrphanHold = "orphan_hold",
        /// The money left and nobody was debited.
        SettledNotDebited = "settled_not_debited",
        /// Debited, but the switch's statement has no settlement, or the money came back.
        DebitedNotSettled = "debited_not_settled",
        /// The money left and the hold was released.
        ReleasedButSettled = "released_but_settled",
        /// The switch settled another amount or currency.
        AmountMismatch = "amount_mismatch",
        /// The switch settled more than one transfer of one payment.
        SettledTwice = "settled_twice",
        /// The switch settled a transfer without a payment.
        TransferWithoutPayment = "transfer_without_payment",
        /// An open payment without a running workflow.
        PaymentWithoutWorkflow = "payment_without_workflow",
        /// A running workflow without a payment, of an ended payment, or replaced by another workflow.
        WorkflowWithoutPayment = "workflow_without_payment",
        /// An authentic callback without a payment.
        UnmatchedCallback = "unmatched_callback",
        /// A payment that has been cancelling for too long.
        StuckCancelling = "stuck_cancelling",
        /// The journal differs from its seal.
        JournalHashMismatch = "journal_hash_mismatch",
    }
);

impl Drift {
    /// Decisions that may resolve this drift. An open payment is decided by a payment decision; money after the end moves by a
    /// correction, with four-eyes.
    #[must_use]
    pub fn allowed(self) -> &'static [OperatorAction] {
        const OPEN_PAYMENT: &[OperatorAction] = &[
            OperatorAction::OpenPayment(Action::RetryCancel),
            OperatorAction::OpenPayment(Action::Debit),
            OperatorAction::OpenPayment(Action::Release),
            OperatorAction::Close,
        ];
        match self {
            Self::SettledNotDebited | Self::ReleasedButSettled => {
                &[OperatorAction::Correction(Correction::LateDebit), OperatorAction::Close]
            }
            Self::DebitedNotSettled => {
                &[OperatorAction::Correction(Correction::ReturnCredit), OperatorAction::Close]
            }
            Self::StuckCancelling | Self::PaymentWithoutWorkflow => OPEN_PAYMENT,
            Self::MissingHold
            | Self::OrphanHold
            | Self::AmountMismatch
            | Self::SettledTwice
            | Self::TransferWithoutPayment
            | Self::WorkflowWithoutPayment
            | Self::UnmatchedCallback
            | Self::JournalHashMismatch => &[OperatorAction::Close],
        }
    }
}

/// The age from which a difference counts as drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tolerance {
    /// Seconds that ledger, switch and workflows may take to follow each other.
    pub grace_s: i64,
    /// Seconds that a cancel may take.
    pub cancelling_s: i64,
}

impl Default for Tolerance {
    /// A grace period of 10 minutes, and 15 minutes for a cancel.
    fn default() -> Self {
        Self { grace_s: 600, cancelling_s: 900 }
    }
}

/// The evidence about one payment from ledger, switch statement and Temporal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentEvidence {
    /// The payment's state.
    pub state: PaymentState,
    /// Why the payment needs an operator, if it does.
    pub operator_reason: Option<OperatorReason>,
    /// Recorded submit attempts.
    pub attempts: i32,
    /// Status of its hold.
    pub hold: Option<HoldStatus>,
    /// Whether the return of its money is recorded; a debit then has an exception of its own.
    pub is_return_recorded: bool,
    /// Whether the journal has its reserve.
    pub is_reserved: bool,
    /// Debits less return credits: 0 or 1 if consistent.
    pub debits: i64,
    /// Transfers of the payment that the statement shows as settled and not returned. `None` without a statement to compare.
    pub settled: Option<i64>,
    /// Settled transfers with another amount or currency.
    pub other_amounts: i64,
    /// Seconds since the newest of the settled transfers settled, by the switch's clock.
    pub settled_for_s: Option<i64>,
    /// Seconds from the debit to the reading of the statement; negative if the debit came later.
    pub debited_before_s: Option<i64>,
    /// Seconds from the newest return that is recorded to the reading of the statement; negative if the return came later. `None` without
    /// one.
    pub returned_before_s: Option<i64>,
    /// Seconds since the cancel began, while the payment is cancelling.
    pub cancelling_s: Option<i64>,
    /// Seconds since the payment was last updated.
    pub idle_s: i64,
    /// Whether its workflow is running. `None` if Temporal was not queried.
    pub has_workflow: Option<bool>,
}

/// The drift of one payment, in the order of [`Drift::ALL`].
#[must_use]
pub fn find_drift(evidence: &PaymentEvidence, tolerance: Tolerance) -> Vec<Drift> {
    let ended = evidence.state.end().is_some();
    let money_left = evidence.settled.is_some_and(|settled| settled > 0);
    // Not drift: an operator already sees the payment, with its reason and the allowed actions.
    let needs_operator = evidence.state == PaymentState::NeedsOperator;
    let grace_passed = evidence.settled_for_s.is_none_or(|age| age >= tolerance.grace_s);
    let past_reserve =
        matches!(evidence.state, PaymentState::Reserved | PaymentState::Submitted | PaymentState::Confirmed);
    let released = evidence.hold == Some(HoldStatus::Released);
    // What came back was not released after it had left. A statement that was read before does not list the return yet.
    let came_back = evidence.returned_before_s.is_some();
    let released_after_leaving = money_left && evidence.debits == 0 && ended && released && !came_back;
    let checks = [
        (
            Drift::MissingHold,
            evidence.hold.is_none()
                && (evidence.is_reserved
                    || past_reserve
                    || (evidence.attempts > 0 && !ended && !needs_operator)),
        ),
        (Drift::OrphanHold, evidence.hold == Some(HoldStatus::Open) && (ended || !evidence.is_reserved)),
        (
            Drift::SettledNotDebited,
            money_left
                && evidence.debits == 0
                && !released_after_leaving
                && !needs_operator
                && grace_passed
                && evidence.returned_before_s.is_none_or(|age| age >= tolerance.grace_s),
        ),
        (
            Drift::DebitedNotSettled,
            evidence.debits > 0
                && evidence.settled == Some(0)
                && !evidence.is_return_recorded
                && evidence.debited_before_s.is_some_and(|age| age >= tolerance.grace_s),
        ),
        (Drift::ReleasedButSettled, released_after_leaving),
        (Drift::AmountMismatch, evidence.other_amounts > 0),
        (Drift::SettledTwice, evidence.settled.is_some_and(|settled| settled > 1)),
        (
            Drift::PaymentWithoutWorkflow,
            !ended
                && evidence.state != PaymentState::Accepted
                // Temporal rejected its start; the starter repeats it.
                && evidence.operator_reason != Some(OperatorReason::WorkflowStartRefused)
                && evidence.has_workflow == Some(false)
                && evidence.idle_s >= tolerance.grace_s,
        ),
        (
            Drift::StuckCancelling,
            evidence.state == PaymentState::Cancelling
                && evidence.cancelling_s.is_some_and(|age| age >= tolerance.cancelling_s),
        ),
    ];
    checks.into_iter().filter_map(|(drift, holds)| holds.then_some(drift)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settled, debited, ended: no drift.
    fn consistent() -> PaymentEvidence {
        PaymentEvidence {
            state: PaymentState::Settled,
            operator_reason: None,
            attempts: 1,
            hold: Some(HoldStatus::Debited),
            is_return_recorded: false,
            is_reserved: true,
            debits: 1,
            settled: Some(1),
            other_amounts: 0,
            settled_for_s: Some(100_000),
            debited_before_s: Some(100_000),
            returned_before_s: None,
            cancelling_s: None,
            idle_s: 100_000,
            has_workflow: Some(false),
        }
    }

    /// Failed, released, void at the switch: no drift.
    fn compensated() -> PaymentEvidence {
        PaymentEvidence {
            state: PaymentState::Failed,
            hold: Some(HoldStatus::Released),
            debits: 0,
            settled: Some(0),
            settled_for_s: None,
            debited_before_s: None,
            returned_before_s: None,
            ..consistent()
        }
    }

    /// In progress: held and sent.
    fn open() -> PaymentEvidence {
        PaymentEvidence {
            state: PaymentState::Submitted,
            hold: Some(HoldStatus::Open),
            has_workflow: Some(true),
            ..compensated()
        }
    }

    #[test]
    fn s0_15_find_drift_names_each_drift_and_nothing_in_progress() {
        use Drift::*;
        use PaymentState as S;
        let fresh = Some(599);
        #[rustfmt::skip]
        let table: Vec<(&str, PaymentEvidence, Vec<Drift>)> = vec![
            ("settled",                        consistent(),                                                                     vec![]),
            ("compensated",                         compensated(),                                                                   vec![]),
            ("in progress",                      open(),                                                                     vec![]),
            ("accepted",                       PaymentEvidence { state: S::Accepted, attempts: 0, hold: None, is_reserved: false, has_workflow: Some(false), ..compensated() }, vec![]),
            ("no statement, no temporal",      PaymentEvidence { settled: None, has_workflow: None, ..consistent() },                       vec![]),
            ("reserve without hold",           PaymentEvidence { hold: None, ..open() },                                              vec![MissingHold]),
            ("attempt without hold",           PaymentEvidence { hold: None, is_reserved: false, ..open() },                          vec![MissingHold]),
            ("state without hold",             PaymentEvidence { state: S::Reserved, attempts: 0, hold: None, is_reserved: false, ..open() }, vec![MissingHold]),
            ("cancelling before the reserve",      PaymentEvidence { state: S::Cancelling, attempts: 0, hold: None, is_reserved: false, ..open() }, vec![]),
            ("hold of an ended payment",       PaymentEvidence { hold: Some(HoldStatus::Open), ..compensated() },                          vec![OrphanHold]),
            ("hold without a reserve",          PaymentEvidence { is_reserved: false, ..open() },                                      vec![OrphanHold]),
            ("settled, not debited after the grace",   PaymentEvidence { settled: Some(1), settled_for_s: Some(600), ..open() },              vec![SettledNotDebited]),
            ("settled within the grace",              PaymentEvidence { settled: Some(1), settled_for_s: fresh, ..open() },                  vec![]),
            ("settled, needs an operator", PaymentEvidence { state: S::NeedsOperator, settled: Some(1), settled_for_s: Some(600), ..open() }, vec![]),
            ("debited, not settled",            PaymentEvidence { settled: Some(0), settled_for_s: None, ..consistent() },                   vec![DebitedNotSettled]),
            ("debited, return recorded",        PaymentEvidence { settled: Some(0), settled_for_s: None, is_return_recorded: true, ..consistent() }, vec![]),
            ("came back after the statement",    PaymentEvidence { debits: 0, hold: Some(HoldStatus::Released), returned_before_s: Some(-1), ..consistent() }, vec![]),
            ("came back, and is not listed",     PaymentEvidence { debits: 0, hold: Some(HoldStatus::Released), returned_before_s: Some(100_000), ..consistent() }, vec![SettledNotDebited]),
            ("debited after the statement",      PaymentEvidence { settled: Some(0), settled_for_s: None, debited_before_s: Some(-1), ..consistent() }, vec![]),
            ("debited within the grace",         PaymentEvidence { settled: Some(0), settled_for_s: None, debited_before_s: fresh, ..consistent() }, vec![]),
            ("released, settled",          PaymentEvidence { settled: Some(1), settled_for_s: Some(0), ..compensated() },              vec![ReleasedButSettled]),
            ("released, settled, late debit",         PaymentEvidence { settled: Some(1), debits: 1, ..compensated() },                           vec![]),
            ("no hold, settled",        PaymentEvidence { hold: None, is_reserved: false, settled: Some(1), settled_for_s: Some(600), ..compensated() }, vec![SettledNotDebited]),
            ("another amount",                 PaymentEvidence { other_amounts: 1, ..consistent() },                                        vec![AmountMismatch]),
            ("settled twice",                     PaymentEvidence { settled: Some(2), ..consistent() },                                        vec![SettledTwice]),
            ("no workflow",                    PaymentEvidence { has_workflow: Some(false), idle_s: 600, ..open() },                  vec![PaymentWithoutWorkflow]),
            ("no workflow within the grace",       PaymentEvidence { has_workflow: Some(false), idle_s: 599, ..open() },                  vec![]),
            ("start refused",                  PaymentEvidence { state: S::NeedsOperator, operator_reason: Some(OperatorReason::WorkflowStartRefused), attempts: 0, hold: None,
                                                      is_reserved: false, has_workflow: Some(false), ..open() },           vec![]),
            ("cancelling too long",            PaymentEvidence { state: S::Cancelling, cancelling_s: Some(900), ..open() },           vec![StuckCancelling]),
            ("cancelling",                     PaymentEvidence { state: S::Cancelling, cancelling_s: Some(899), ..open() },           vec![]),
            ("several kinds",                PaymentEvidence { state: S::Cancelling, cancelling_s: Some(900), settled: Some(2), other_amounts: 1, settled_for_s: Some(600), ..open() },
                                                                                                                           vec![SettledNotDebited, AmountMismatch, SettledTwice, StuckCancelling]),
        ];
        for (name, evidence, expected) in table {
            assert_eq!(find_drift(&evidence, Tolerance::default()), expected, "{name}");
        }
    }
}
