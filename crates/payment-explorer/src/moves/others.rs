//! The moves of others who send the same amount to the same account at a switch without references: another payment of this bank,
//! which follows the same rules, and a stranger, who follows none.

use payment_protocol::PaymentState;
use payment_protocol::facts::{Facts, HoldStatus, ReserveRecord};
use payment_protocol::ids::RunId;
use payment_protocol::rules::{self, AttemptRuling};

use super::collector::MoveList;
use crate::listing::SecondPayment;
use crate::state::State;
use crate::switch::TransferStatus;

pub(super) fn add(list: &mut MoveList<'_>) {
    if !list.model.profile().needs_account_lock() {
        return;
    }
    stranger(list);
    second(list);
}

/// A transfer of a stranger, only when it is not the only candidate: beside our own transfer, or before our marker. A stranger's
/// transfer after our marker while our own never arrives cannot be distinguished from ours: the limit in decision 0008.
fn stranger(list: &mut MoveList<'_>) {
    let State { switch, listing, .. } = list.from;
    if listing.marker && switch.transfers.is_empty() || !listing.others.is_empty() {
        return;
    }
    list.switch_fault(
        |next| {
            next.listing.add(TransferStatus::Settled);
        },
        || "a stranger sends the same amount to the same account".into(),
    );
}

/// The steps of the other payment. It does not wait for the account lock, which a restored Temporal may grant twice: only the ledger
/// keeps the two apart.
fn second(list: &mut MoveList<'_>) {
    let to = |next: &mut State, second: SecondPayment| next.listing.second = second;
    match list.from.listing.second {
        SecondPayment::Waiting => {
            if may_attempt(list)
                && let Some(left) = list.from.budget.second_payments.checked_sub(1)
            {
                list.optional(
                    |next| {
                        next.budget.second_payments = left;
                        to(next, SecondPayment::Attempted);
                    },
                    || "another payment to the account records its attempt".into(),
                );
            }
        }
        SecondPayment::Attempted => {
            list.benign(|next| to(next, SecondPayment::Sent), || "the other payment sends".into());
        }
        SecondPayment::Sent => {
            list.benign(
                |next| {
                    let at = next.listing.add(TransferStatus::Pending);
                    to(next, SecondPayment::Listed(at));
                },
                || "the other payment's transfer arrives".into(),
            );
            list.optional(
                |next| to(next, SecondPayment::Ended),
                || "the other payment's transfer is lost, and the payment ends after its deadline".into(),
            );
        }
        SecondPayment::Listed(at) => listed(list, at),
        SecondPayment::Ended => {}
    }
}

fn listed(list: &mut MoveList<'_>, at: u8) {
    let status = list.from.listing.others.get(usize::from(at)).map(|other| other.status);
    if status != Some(TransferStatus::Pending) {
        list.benign(|next| next.listing.second = SecondPayment::Ended, || "the other payment ends".into());
        return;
    }
    for (status, description) in [
        (TransferStatus::Settled, "the switch settles the other payment's transfer"),
        (TransferStatus::Rejected, "the switch rejects the other payment's transfer"),
    ] {
        list.benign(
            |next| {
                if let Some(other) = next.listing.other(at) {
                    other.status = status;
                }
            },
            || description.into(),
        );
    }
}

/// Whether the ledger allows the other payment's only attempt, by the protocol's own rule.
fn may_attempt(list: &MoveList<'_>) -> bool {
    let bank = &list.from.bank;
    let Ok(run) = RunId::new("run-of-the-other-payment") else { return false };
    let facts = Facts {
        state: PaymentState::Reserved,
        run_id: Some(run.clone()),
        reserve: Some(ReserveRecord::Held),
        hold: Some(HoldStatus::Open),
        account_busy: bank.keeps_account_busy(),
        ..Facts::accepted()
    };
    matches!(rules::attempt(&facts, &run, list.model.profile(), false), AttemptRuling::Send(_))
}
