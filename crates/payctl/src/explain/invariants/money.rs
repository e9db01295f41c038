//! I1 to I4: what was posted, held, debited and released.

use payment_ledger::reads::view::PaymentView;
use payment_protocol::PaymentState;
use payment_protocol::rules::retention_expired;
use payment_protocol::state::FinalState;
use payment_protocol::submit::QueryAnswer;

use super::{Finding, Records, holds_if, unknown};
use crate::document::money;
use reconciliation::transfer::{LookupMethod, TransferView};

impl Records<'_> {
    /// Checks invariant I1.
    pub(super) fn entries_add_up(&self) -> Finding {
        let PaymentView { amount_minor, currency, .. } = self.view;
        let odd = self.explained.journal.iter().find(|entry| {
            entry.amount_minor > *amount_minor
                || (entry.amount_minor < *amount_minor && !may_be_a_part(&entry.kind))
                || entry.currency != *currency
                || entry.debit_account == entry.credit_account
        });
        if let Some(entry) = odd {
            return holds_if(
                false,
                format!("entry {} differs from the payment in amount or accounts", entry.operation_key),
            );
        }
        let (holding, escrow) = (self.balance_in("holding"), self.balance_in("escrow"));
        let expected_holding = if self.hold_status() == Some("open") { *amount_minor } else { 0 };
        let expected_escrow = if self.debits() > 0 { *amount_minor - self.view.returned_minor } else { 0 };
        holds_if(
            (holding, escrow) == (expected_holding, expected_escrow),
            format!(
                "holding has {} and escrow {}, expected {} and {}",
                money(holding, currency),
                money(escrow, currency),
                money(expected_holding, currency),
                money(expected_escrow, currency)
            ),
        )
    }

    /// Sum of the payment's entries in an internal account, in minor units.
    fn balance_in(&self, account: &str) -> i64 {
        let account = format!("internal:{account}:{}", self.view.currency);
        let signed = self.explained.journal.iter().map(|entry| {
            i64::from(entry.credit_account == account) * entry.amount_minor
                - i64::from(entry.debit_account == account) * entry.amount_minor
        });
        signed.sum()
    }

    /// Checks invariant I2.
    pub(super) fn hold_closes_once(&self) -> Finding {
        let (reserves, debits, releases) =
            (self.entries_of_kind("reserve"), self.entries_of_kind("debit"), self.entries_of_kind("release"));
        let agrees = match self.hold_status() {
            None => (reserves, debits, releases) == (0, 0, 0),
            Some("open") => (debits, releases) == (0, 0),
            Some("released") => (debits, releases) == (0, 1),
            Some(_) => (debits, releases) == (1, 0),
        };
        let hold = self.hold_status().unwrap_or("none");
        holds_if(agrees, format!("hold: {hold}; debit entries: {debits}; release entries: {releases}"))
    }

    /// Checks invariant I3.
    pub(super) fn debited_only_if_settled(&self, switch: Option<&TransferView>) -> Finding {
        if self.is_returned() {
            return holds_if(true, "debited, and the money came back");
        }
        if !self.is_debited() {
            return holds_if(self.view.state != PaymentState::Settled, "not debited");
        }
        let final_status = self.explained.payment.final_status.as_deref();
        if final_status == Some("void") && self.entries_of_kind("late_debit") == 0 {
            return holds_if(false, "debited, but the recorded final status is void");
        }
        if final_status.is_none() {
            return holds_if(false, "debited, but no final status is recorded");
        }
        match switch.map(|view| (&view.answer, view.method)) {
            Some((QueryAnswer::Settled(_), _)) => holds_if(true, "debited, and the switch reports settled"),
            Some((QueryAnswer::Returned(_), _)) => holds_if(
                false,
                "debited, but the switch reports that the money came back; decide return-credit",
            ),
            Some((QueryAnswer::Pending, _)) => holds_if(false, "debited, but the switch reports pending"),
            Some((QueryAnswer::Void { reject }, _)) => {
                holds_if(false, format!("debited, but the switch reports void: {reject}"))
            }
            // Not evidence: after the retention period, in a statement that may be late, or where operators knew more.
            Some((QueryAnswer::NotFound, LookupMethod::Query | LookupMethod::ReadBack))
                if !self.is_final_status_by_decision() && !self.is_retention_expired() =>
            {
                holds_if(false, "debited, but the switch does not know the transfer")
            }
            _ if self.is_final_status_by_decision() => {
                unknown("debited by an approved operator decision; the switch gives no answer")
            }
            _ => unknown("debited by the recorded final status; the switch gives no answer now"),
        }
    }

    /// Checks invariant I4.
    pub(super) fn released_only_if_void(&self, switch: Option<&TransferView>) -> Finding {
        if self.is_returned() && self.entries_of_kind("return_credit") == 0 {
            return holds_if(true, "the switch returned the money by messages of its own");
        }
        if self.is_returned() {
            return returned_only_if_void(switch);
        }
        let is_released = self.entries_of_kind("release") > 0;
        let ended_uncharged = self.final_state().is_some_and(|end| end != FinalState::Settled);
        if !(is_released || ended_uncharged) || self.is_debited() {
            return holds_if(true, "charged, or nothing was released");
        }
        let row = &self.explained.payment;
        let owes_nothing = matches!(row.final_status.as_deref(), Some("void" | "returned"));
        if !(owes_nothing || row.attempts == 0) {
            return holds_if(false, "released, but no record shows that the transfer can never settle");
        }
        match switch.map(|view| &view.answer) {
            Some(QueryAnswer::Settled(_)) => {
                holds_if(false, "nothing is charged, but the switch reports settled")
            }
            Some(QueryAnswer::Pending) => {
                holds_if(false, "nothing is charged, but the switch reports pending: the transfer may settle")
            }
            Some(
                QueryAnswer::Void { .. }
                | QueryAnswer::NotFound
                | QueryAnswer::NotListed { .. }
                | QueryAnswer::Returned(_),
            ) => holds_if(true, "nothing is charged, and the switch reports no settled transfer"),
            _ => unknown("nothing is charged by the ledger's records; the switch gives no answer now"),
        }
    }

    fn is_retention_expired(&self) -> bool {
        let row = &self.explained.payment;
        let age_ms = row.first_attempt_at.map(|at| jiff::Timestamp::now().duration_since(at).as_millis());
        retention_expired(age_ms.and_then(|age_ms| u64::try_from(age_ms).ok()), &row.profile)
    }
}

/// Whether an entry of this kind may be smaller than the amount: a return, or the rest of a claim after one.
fn may_be_a_part(kind: &str) -> bool {
    matches!(kind, "return" | "return_credit" | "collect" | "write_off")
}

/// Checks invariant I4 for a payment whose amount a correction gave back.
fn returned_only_if_void(switch: Option<&TransferView>) -> Finding {
    match switch.map(|view| &view.answer) {
        Some(QueryAnswer::Settled(_)) => {
            holds_if(false, "returned by a correction, but the switch reports settled")
        }
        Some(QueryAnswer::Pending) => holds_if(
            false,
            "returned by a correction, but the switch reports pending: the transfer may settle",
        ),
        Some(QueryAnswer::Void { .. } | QueryAnswer::Returned(_)) => {
            holds_if(true, "returned by a correction, and the switch does not keep the money")
        }
        _ => unknown("returned by an approved correction; the switch gives no answer"),
    }
}
