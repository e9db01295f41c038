//! Every idempotency key; nothing else in the service builds one (S0.12).
//!
//! A key is derived from the payment id and a step's constant, so it survives any crash. A step and its
//! compensation have keys of different *types*: one in the place of the other does not compile.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{DecisionId, PaymentId, ReturnId, SwitchName, TxId, digest};

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The key as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

key!(
    /// Key of a forward step.
    StepKey
);
key!(
    /// Key of a compensation.
    CompensationKey
);
key!(
    /// `{tx_id}:submit`: the id by which the switch knows the transfer, and the key of a query.
    Reference
);

const SUBMIT: &str = ":submit";

/// Key of reserve: `{payment_id}:reserve` (S0.3). Derived from the payment id, because reserve creates the
/// transaction.
#[must_use]
pub fn reserve(payment: &PaymentId) -> StepKey {
    StepKey(format!("{payment}:reserve"))
}

/// The reference at the switch: `{tx_id}:submit` (S0.4).
#[must_use]
pub fn submit(tx: &TxId) -> Reference {
    let reference = Reference(format!("{tx}{SUBMIT}"));
    debug_assert_eq!(reference.tx_id().as_ref(), Some(tx), "a reference contains its transaction id");
    reference
}

/// Key of debit: `{tx_id}:debit` (S0.7).
#[must_use]
pub fn debit(tx: &TxId) -> StepKey {
    StepKey(format!("{tx}:debit"))
}

/// Key of recall: `{tx_id}:recall`. A recall is an operation of its own, not the compensation of submit.
#[must_use]
pub fn recall(tx: &TxId) -> StepKey {
    StepKey(format!("{tx}:recall"))
}

/// Key of the advance that restores the customer's account: `{tx_id}:advance`.
#[must_use]
pub fn advance(tx: &TxId) -> StepKey {
    StepKey(format!("{tx}:advance"))
}

/// Key of the booking of one return: `{tx_id}:return:{return_id}`.
#[must_use]
pub fn book_return(tx: &TxId, return_id: &ReturnId) -> StepKey {
    StepKey(format!("{tx}:return:{return_id}"))
}

/// Key of the collection of an advance from the customer, after a late settlement: `{tx_id}:collect`.
#[must_use]
pub fn collect(tx: &TxId) -> StepKey {
    StepKey(format!("{tx}:collect"))
}

/// Key of release, the compensation of reserve: `{tx_id}:comp-reserve` (S0.8).
#[must_use]
pub fn compensate_reserve(tx: &TxId) -> CompensationKey {
    CompensationKey(format!("{tx}:comp-reserve"))
}

/// Key of cancel, the compensation of submit: `{tx_id}:comp-submit` (S0.8).
#[must_use]
pub fn compensate_submit(tx: &TxId) -> CompensationKey {
    CompensationKey(format!("{tx}:comp-submit"))
}

/// Key of a debit by decision: `{tx_id}:debit:{decision_id}`. A decision never reuses a step's key, under which
/// a refusal may be recorded.
#[must_use]
pub fn debit_by_decision(tx: &TxId, decision: &DecisionId) -> StepKey {
    StepKey(format!("{tx}:debit:{decision}"))
}

/// Key of a release by decision: `{tx_id}:comp-reserve:{decision_id}`.
#[must_use]
pub fn compensate_reserve_by_decision(tx: &TxId, decision: &DecisionId) -> CompensationKey {
    CompensationKey(format!("{tx}:comp-reserve:{decision}"))
}

/// Key of a correction after the payment ended: `{tx_id}:correct:{decision_id}`.
#[must_use]
pub fn correction(tx: &TxId, decision: &DecisionId) -> StepKey {
    StepKey(format!("{tx}:correct:{decision}"))
}

/// Workflow id of a payment: the payment id for the first run (S0.1), `{payment_id}:resume:{n}` for the n-th
/// recovery workflow.
#[must_use]
pub fn workflow_id(payment: &PaymentId, resume: u32) -> String {
    match resume {
        0 => payment.to_string(),
        n => format!("{payment}:resume:{n}"),
    }
}

/// The payment of a workflow id; `None` if the id has not the form of a payment's.
#[must_use]
pub fn payment_of_workflow(workflow_id: &str) -> Option<PaymentId> {
    let payment = workflow_id.split_once(":resume:").map_or(workflow_id, |(payment, _)| payment);
    PaymentId::new(payment).ok()
}

/// Workflow id of the lock of a destination account at a switch without references (S1.5); contains no account
/// number. `installation` separates banks that share one Temporal server.
#[must_use]
pub fn account_lock_id(installation: &str, switch: &SwitchName, destination: &str) -> String {
    let account = digest(&["account lock", installation, switch.as_str(), destination], 32);
    format!("lock:{switch}:{account}")
}

impl Reference {
    /// Parses a reference that a switch returned; `None` if it has not the form of ours.
    #[must_use]
    pub fn from_switch(text: &str) -> Option<Self> {
        let tx = text.strip_suffix(SUBMIT)?;
        TxId::new(tx).ok().map(|tx| submit(&tx))
    }

    /// The transaction of this reference; `None` if the reference has not the form of ours.
    #[must_use]
    pub fn tx_id(&self) -> Option<TxId> {
        self.0.strip_suffix(SUBMIT).and_then(|tx| TxId::new(tx).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ClientId, TenantId};

    #[test]
    fn s0_12_operation_keys_have_the_documented_form_and_differ() {
        let payment = PaymentId::new("pay_1").unwrap();
        let tx = TxId::new("tx_1").unwrap();
        let decision = DecisionId::new("dec_1").unwrap();
        let all = [
            reserve(&payment).to_string(),
            submit(&tx).to_string(),
            debit(&tx).to_string(),
            recall(&tx).to_string(),
            advance(&tx).to_string(),
            collect(&tx).to_string(),
            book_return(&tx, &ReturnId::new("ret_1").unwrap()).to_string(),
            compensate_reserve(&tx).to_string(),
            compensate_submit(&tx).to_string(),
            debit_by_decision(&tx, &decision).to_string(),
            compensate_reserve_by_decision(&tx, &decision).to_string(),
            correction(&tx, &decision).to_string(),
        ];
        assert_eq!(
            all,
            [
                "pay_1:reserve",
                "tx_1:submit",
                "tx_1:debit",
                "tx_1:recall",
                "tx_1:advance",
                "tx_1:collect",
                "tx_1:return:ret_1",
                "tx_1:comp-reserve",
                "tx_1:comp-submit",
                "tx_1:debit:dec_1",
                "tx_1:comp-reserve:dec_1",
                "tx_1:correct:dec_1"
            ]
        );
        assert_eq!(workflow_id(&payment, 0), "pay_1");
        assert_eq!(workflow_id(&payment, 3), "pay_1:resume:3");
        for resume in [0, 3] {
            assert_eq!(payment_of_workflow(&workflow_id(&payment, resume)), Some(payment.clone()));
        }
    }

    /// The UI shows workflow ids.
    #[test]
    fn s1_5_an_account_lock_is_of_one_account_at_one_switch_and_does_not_name_the_account() {
        let id = |installation, switch, account| {
            account_lock_id(installation, &SwitchName::new(switch).unwrap(), account)
        };
        let lock = id("bank", "mock", "FR-CAROL");
        assert!(lock.starts_with("lock:mock:") && !lock.contains("CAROL"), "{lock}");
        assert_eq!(lock, id("bank", "mock", "FR-CAROL"));
        for other in
            [id("other", "mock", "FR-CAROL"), id("bank", "fast", "FR-CAROL"), id("bank", "mock", "FR-BOB")]
        {
            assert_ne!(lock, other);
        }
    }

    #[test]
    fn a_switch_reference_fits_iso_20022_and_contains_its_transaction_id() {
        let payment = PaymentId::derive(&TenantId::new("t").unwrap(), &ClientId::new("c").unwrap(), "k");
        let tx = TxId::derive(&payment);
        let reference = submit(&tx);
        assert!(reference.as_str().len() <= 35, "{reference}");
        assert_eq!(Reference::from_switch(reference.as_str()), Some(reference.clone()));
        assert_eq!(reference.tx_id(), Some(tx));
        for foreign in ["", ":submit", "tx_1", "tx 1:submit", "tx_1:debit"] {
            assert_eq!(Reference::from_switch(foreign), None, "{foreign:?}");
        }
    }
}
