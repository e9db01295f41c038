//! What may be wrong between the three books, and how it is told from what is merely under way. Pure: one row of facts
//! in, the kinds of drift out.

use payment_protocol::PaymentState;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::Action;
use payment_protocol::facts::HoldStatus;
use payment_protocol::text_enum;
use serde::{Deserialize, Serialize};

use crate::operator::decisions::{Correction, OperatorAction};

text_enum!(
    /// A kind of disagreement between the bank's ledger, the switch's statement and the workflows, in the order of reports.
    Drift {
        /// Sent or posted, and no hold stands behind it.
        MissingHold = "missing_hold",
        /// An open hold of a payment that has ended, or that no journal entry explains.
        OrphanHold = "orphan_hold",
        /// The money left, and nobody was debited.
        SettledNotDebited = "settled_not_debited",
        /// Debited, and the switch's statement knows of no settlement, or the money came back.
        DebitedNotSettled = "debited_not_settled",
        /// The money left, and the customer was given the hold back.
        ReleasedButSettled = "released_but_settled",
        /// The switch settled another amount or currency than was asked for.
        AmountMismatch = "amount_mismatch",
        /// The switch settled more than one transfer of one payment.
        SettledTwice = "settled_twice",
        /// The switch settled a transfer that is no payment's.
        TransferWithoutPayment = "transfer_without_payment",
        /// An open payment that no workflow carries on.
        PaymentWithoutWorkflow = "payment_without_workflow",
        /// A running workflow of no payment, or of one that has ended or that another workflow has.
        WorkflowWithoutPayment = "workflow_without_payment",
        /// An authentic callback that belongs to no payment.
        UnmatchedCallback = "unmatched_callback",
        /// A payment whose switch has been asked to cancel for too long.
        StuckCancelling = "stuck_cancelling",
        /// The journal is not what was sealed.
        JournalHashMismatch = "journal_hash_mismatch",
    }
);

impl Drift {
    /// What people may do about it. An open payment is decided where it stands; what moves money after the end is a
    /// correction, by two people.
    #[must_use]
    pub fn allowed(self) -> &'static [OperatorAction] {
        const STANDING: &[OperatorAction] = &[
            OperatorAction::Standing(Action::RetryCancel),
            OperatorAction::Standing(Action::Debit),
            OperatorAction::Standing(Action::Release),
            OperatorAction::Close,
        ];
        match self {
            Self::SettledNotDebited | Self::ReleasedButSettled => {
                &[OperatorAction::Correction(Correction::LateDebit), OperatorAction::Close]
            }
            Self::DebitedNotSettled => {
                &[OperatorAction::Correction(Correction::ReturnCredit), OperatorAction::Close]
            }
            Self::StuckCancelling | Self::PaymentWithoutWorkflow => STANDING,
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

/// How old something must be before it counts as wrong and not as under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tolerance {
    /// Seconds that the books may take to follow each other.
    pub grace_s: i64,
    /// Seconds that a switch may be asked to cancel.
    pub cancelling_s: i64,
}

impl Default for Tolerance {
    /// Ten minutes, and a quarter of an hour.
    fn default() -> Self {
        Self { grace_s: 600, cancelling_s: 900 }
    }
}

/// What the three books say of one payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Where it stands.
    pub state: PaymentState,
    /// Why it stands before a person, where it does.
    pub operator_reason: Option<OperatorReason>,
    /// Attempts on record.
    pub attempts: i32,
    /// Its hold.
    pub hold: Option<HoldStatus>,
    /// Whether the journal has its reserve.
    pub is_reserved: bool,
    /// Debits less credits that gave them back: 0 or 1 if all is well.
    pub debits: i64,
    /// Transfers of it that the statement has as settled and not as recalled. None: there is no statement to compare.
    pub settled: Option<i64>,
    /// Of those, transfers of another amount or currency.
    pub other_amounts: i64,
    /// Seconds since the newest of them was settled, by the switch's clock.
    pub settled_for_s: Option<i64>,
    /// Seconds by which the debit is older than the reading of the statement; negative if it came after.
    pub debited_before_s: Option<i64>,
    /// Seconds since the switch was first asked to cancel, while that goes on.
    pub cancelling_s: Option<i64>,
    /// Seconds since the payment last moved.
    pub idle_s: i64,
    /// Whether its workflow was running. None: Temporal was not asked.
    pub has_workflow: Option<bool>,
}

/// What is wrong with one payment, in the order of [`Drift::ALL`].
#[must_use]
pub fn judge(seen: &Seen, tolerance: Tolerance) -> Vec<Drift> {
    let ended = seen.state.end().is_some();
    let left = seen.settled.is_some_and(|settled| settled > 0);
    // A person has it before them, with its reason and what may be decided.
    let stands = seen.state == PaymentState::NeedsOperator;
    let followed_up = seen.settled_for_s.is_none_or(|age| age >= tolerance.grace_s);
    let past_reserve =
        matches!(seen.state, PaymentState::Reserved | PaymentState::Submitted | PaymentState::Confirmed);
    let released = seen.hold == Some(HoldStatus::Released);
    let given_back = left && seen.debits == 0 && ended && released;
    let checks = [
        (
            Drift::MissingHold,
            seen.hold.is_none()
                && (seen.is_reserved || past_reserve || (seen.attempts > 0 && !ended && !stands)),
        ),
        (Drift::OrphanHold, seen.hold == Some(HoldStatus::Open) && (ended || !seen.is_reserved)),
        (Drift::SettledNotDebited, left && seen.debits == 0 && !given_back && !stands && followed_up),
        (
            Drift::DebitedNotSettled,
            seen.debits > 0
                && seen.settled == Some(0)
                && seen.debited_before_s.is_some_and(|age| age >= tolerance.grace_s),
        ),
        (Drift::ReleasedButSettled, given_back),
        (Drift::AmountMismatch, seen.other_amounts > 0),
        (Drift::SettledTwice, seen.settled.is_some_and(|settled| settled > 1)),
        (
            Drift::PaymentWithoutWorkflow,
            !ended
                && seen.state != PaymentState::Accepted
                // Temporal itself refuses to start it; the starter goes on trying.
                && seen.operator_reason != Some(OperatorReason::WorkflowStartRefused)
                && seen.has_workflow == Some(false)
                && seen.idle_s >= tolerance.grace_s,
        ),
        (
            Drift::StuckCancelling,
            seen.state == PaymentState::Cancelling
                && seen.cancelling_s.is_some_and(|age| age >= tolerance.cancelling_s),
        ),
    ];
    checks.into_iter().filter_map(|(drift, is_so)| is_so.then_some(drift)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settled, debited, ended: nothing wrong.
    fn well() -> Seen {
        Seen {
            state: PaymentState::Settled,
            operator_reason: None,
            attempts: 1,
            hold: Some(HoldStatus::Settled),
            is_reserved: true,
            debits: 1,
            settled: Some(1),
            other_amounts: 0,
            settled_for_s: Some(100_000),
            debited_before_s: Some(100_000),
            cancelling_s: None,
            idle_s: 100_000,
            has_workflow: Some(false),
        }
    }

    /// Failed, released, dead at the switch: nothing wrong.
    fn undone() -> Seen {
        Seen {
            state: PaymentState::Failed,
            hold: Some(HoldStatus::Released),
            debits: 0,
            settled: Some(0),
            settled_for_s: None,
            debited_before_s: None,
            ..well()
        }
    }

    /// Under way: held, sent, waited for.
    fn open() -> Seen {
        Seen {
            state: PaymentState::Submitted,
            hold: Some(HoldStatus::Open),
            has_workflow: Some(true),
            ..undone()
        }
    }

    #[test]
    fn s0_15_each_drift_is_named_and_what_is_under_way_is_none() {
        use Drift::*;
        use PaymentState as S;
        let fresh = Some(599);
        #[rustfmt::skip]
        let table: Vec<(&str, Seen, Vec<Drift>)> = vec![
            ("settled",                        well(),                                                                     vec![]),
            ("undone",                         undone(),                                                                   vec![]),
            ("under way",                      open(),                                                                     vec![]),
            ("accepted",                       Seen { state: S::Accepted, attempts: 0, hold: None, is_reserved: false, has_workflow: Some(false), ..undone() }, vec![]),
            ("no statement, no temporal",      Seen { settled: None, has_workflow: None, ..well() },                       vec![]),
            ("reserve without hold",           Seen { hold: None, ..open() },                                              vec![MissingHold]),
            ("attempt without hold",           Seen { hold: None, is_reserved: false, ..open() },                          vec![MissingHold]),
            ("state without hold",             Seen { state: S::Reserved, attempts: 0, hold: None, is_reserved: false, ..open() }, vec![MissingHold]),
            ("undone before it was held",      Seen { state: S::Cancelling, attempts: 0, hold: None, is_reserved: false, ..open() }, vec![]),
            ("hold of an ended payment",       Seen { hold: Some(HoldStatus::Open), ..undone() },                          vec![OrphanHold]),
            ("hold without an entry",          Seen { is_reserved: false, ..open() },                                      vec![OrphanHold]),
            ("left, long ago, not followed",   Seen { settled: Some(1), settled_for_s: Some(600), ..open() },              vec![SettledNotDebited]),
            ("left a moment ago",              Seen { settled: Some(1), settled_for_s: fresh, ..open() },                  vec![]),
            ("left, and stands before people", Seen { state: S::NeedsOperator, settled: Some(1), settled_for_s: Some(600), ..open() }, vec![]),
            ("debited, never left",            Seen { settled: Some(0), settled_for_s: None, ..well() },                   vec![DebitedNotSettled]),
            ("debited after the reading",      Seen { settled: Some(0), settled_for_s: None, debited_before_s: Some(-1), ..well() }, vec![]),
            ("debited just before it",         Seen { settled: Some(0), settled_for_s: None, debited_before_s: fresh, ..well() }, vec![]),
            ("released, and it left",          Seen { settled: Some(1), settled_for_s: Some(0), ..undone() },              vec![ReleasedButSettled]),
            ("released, charged late",         Seen { settled: Some(1), debits: 1, ..undone() },                           vec![]),
            ("never held, and it left",        Seen { hold: None, is_reserved: false, settled: Some(1), settled_for_s: Some(600), ..undone() }, vec![SettledNotDebited]),
            ("another amount",                 Seen { other_amounts: 1, ..well() },                                        vec![AmountMismatch]),
            ("left twice",                     Seen { settled: Some(2), ..well() },                                        vec![SettledTwice]),
            ("no workflow",                    Seen { has_workflow: Some(false), idle_s: 600, ..open() },                  vec![PaymentWithoutWorkflow]),
            ("no workflow for a moment",       Seen { has_workflow: Some(false), idle_s: 599, ..open() },                  vec![]),
            ("start refused",                  Seen { state: S::NeedsOperator, operator_reason: Some(OperatorReason::WorkflowStartRefused), attempts: 0, hold: None,
                                                      is_reserved: false, has_workflow: Some(false), ..open() },           vec![]),
            ("cancelling for long",            Seen { state: S::Cancelling, cancelling_s: Some(900), ..open() },           vec![StuckCancelling]),
            ("cancelling",                     Seen { state: S::Cancelling, cancelling_s: Some(899), ..open() },           vec![]),
            ("several at once",                Seen { state: S::Cancelling, cancelling_s: Some(900), settled: Some(2), other_amounts: 1, settled_for_s: Some(600), ..open() },
                                                                                                                           vec![SettledNotDebited, AmountMismatch, SettledTwice, StuckCancelling]),
        ];
        for (name, seen, expected) in table {
            assert_eq!(judge(&seen, Tolerance::default()), expected, "{name}");
        }
    }
}
