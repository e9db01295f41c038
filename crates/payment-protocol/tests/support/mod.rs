//! A payment and its switch, for every test of the protocol.

#![allow(dead_code, reason = "each test file is a binary of its own and uses a part of this")]

use iso_currency::Currency;
use payment_protocol::ids::{AccountId, PaymentId, SwitchName, TxId};
use payment_protocol::money::Money;
use payment_protocol::profile::Strategy;
use payment_protocol::report::SettledReport;
use payment_protocol::{Payment, SwitchProfile};

/// How long the switch remembers a reference.
pub(crate) const RETENTION_MS: u64 = 86_400_000;
/// How far its clock may be off.
pub(crate) const SKEW_MS: i64 = 1_000;
/// Age at which an undecided asking raises an alert.
pub(crate) const ALERT_AFTER_MS: u64 = 120_000;

/// A switch that can do everything.
pub(crate) fn whole() -> SwitchProfile {
    SwitchProfile {
        switch: SwitchName::new("northern").unwrap(),
        strategy: Strategy::Reference,
        has_query: true,
        deduplicates: true,
        retention_s: RETENTION_MS / 1_000,
        tombstones: true,
        honours_deadline: true,
        max_skew_ms: SKEW_MS.unsigned_abs(),
        can_cancel: true,
        can_recall: true,
        has_callback: true,
        has_statement: false,
        breaker_failures: 20,
        breaker_open_ms: 2_000,
        sla_ms: 60_000,
        submit_deadline_ms: 60_000,
        attempt_timeout_ms: 5_000,
        submit_budget_ms: 30_000,
        backoff_ms: 250,
        ask_interval_max_ms: 300_000,
        alert_after_ms: ALERT_AFTER_MS,
        start_within_ms: 3_600_000,
        amount_limit_minor: 100_000,
    }
}

/// A payment of 10.00 EUR; `resume` 0 runs from the top.
pub(crate) fn payment(resume: u32) -> Payment {
    let payment_id = PaymentId::new("pay_1").unwrap();
    Payment {
        tx_id: TxId::derive(&payment_id),
        payment_id,
        money: Money::from_minor(1_000, Currency::EUR).unwrap(),
        source_account: AccountId::new("alice").unwrap(),
        profile: whole(),
        resume,
    }
}

/// The SUCCESS that is the payment's.
pub(crate) fn report() -> SettledReport {
    let payment = payment(0);
    SettledReport {
        switch: payment.profile.switch.clone(),
        reference: payment.reference().to_string(),
        amount_minor: 1_000,
        currency: "EUR".into(),
    }
}
