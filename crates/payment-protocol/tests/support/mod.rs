//! A payment and its switch, for the tests of the protocol.

#![allow(dead_code, reason = "each test file is its own binary and uses a part of this module")]

use iso_currency::Currency;
use payment_protocol::ids::{AccountId, PaymentId, SwitchName, TxId};
use payment_protocol::money::Money;
use payment_protocol::profile::Strategy;
use payment_protocol::report::SettledReport;
use payment_protocol::{Payment, SwitchProfile};

/// How long the switch remembers a reference, in milliseconds.
pub(crate) const RETENTION_MS: u64 = 86_400_000;
/// How far the switch's clocks may differ, in milliseconds.
pub(crate) const SKEW_MS: i64 = 1_000;
/// Age at which an undecided cancel raises an alert, in milliseconds.
pub(crate) const ALERT_AFTER_MS: u64 = 120_000;

/// A switch that offers everything.
pub(crate) fn full_profile() -> SwitchProfile {
    SwitchProfile {
        has_query: true,
        deduplicates: true,
        tombstones: true,
        honours_deadline: true,
        can_cancel: true,
        can_recall: true,
        has_callback: true,
        retention_s: RETENTION_MS / 1_000,
        max_skew_ms: SKEW_MS.unsigned_abs(),
        alert_after_ms: ALERT_AFTER_MS,
        amount_limit_minor: 100_000,
        ..SwitchProfile::minimal(SwitchName::new("northern").unwrap(), Strategy::Reference)
    }
}

/// A payment of 10.00 EUR; `resume` 0 runs forward.
pub(crate) fn payment(resume: u32) -> Payment {
    let payment_id = PaymentId::new("pay_1").unwrap();
    Payment {
        tx_id: TxId::derive(&payment_id),
        payment_id,
        money: Money::from_minor(1_000, Currency::EUR).unwrap(),
        source_account: AccountId::new("alice").unwrap(),
        profile: full_profile(),
        resume,
    }
}

/// The SUCCESS of [`payment`].
pub(crate) fn report() -> SettledReport {
    let payment = payment(0);
    SettledReport {
        switch: payment.profile.switch.clone(),
        reference: payment.reference().to_string(),
        amount_minor: 1_000,
        currency: "EUR".into(),
    }
}
