//! Sample values: identifiers, a switch profile, and the callbacks and reports of a payment.

use iso_currency::Currency;
use payment_ledger::switch::callbacks::Callback;
use payment_protocol::SwitchProfile;
use payment_protocol::ids::{AccountId, EventId, ReturnId, RunId, SwitchName, TenantId};
use payment_protocol::inbox::CallbackStatus;
use payment_protocol::keys;
use payment_protocol::money::Money;
use payment_protocol::profile::Strategy;
use payment_protocol::report::SettledReport;
use payment_protocol::returns::ReturnReport;

use super::Sample;

/// Opening balance of every account.
pub(crate) const FUNDS_MINOR: i64 = 10_000;
/// Amount of every payment.
pub(crate) const AMOUNT_MINOR: i64 = 1_000;
/// The switch of the payments.
pub(crate) const SWITCH: &str = "northern";
/// Another switch of the bank.
pub(crate) const OTHER_SWITCH: &str = "southern";

pub(crate) fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

pub(crate) fn account_id(name: &str) -> AccountId {
    AccountId::new(name).unwrap()
}

pub(crate) fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// The run that starts the payment.
pub(crate) fn first_run() -> RunId {
    run("run-1")
}

pub(crate) fn eur(amount_minor: i64) -> Money {
    Money::from_minor(amount_minor, Currency::EUR).unwrap()
}

pub(crate) fn at(ms: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(ms).unwrap()
}

/// The switch's clock at every first attempt.
pub(crate) const SWITCH_NOW_MS: i64 = 1_700_000_000_000;

/// Profile of a switch with every feature.
pub(crate) fn profile() -> SwitchProfile {
    SwitchProfile {
        has_query: true,
        deduplicates: true,
        tombstones: true,
        honours_deadline: true,
        can_cancel: true,
        can_recall: true,
        has_callback: true,
        amount_limit_minor: 1_000_000_000,
        ..SwitchProfile::minimal(SwitchName::new(SWITCH).unwrap(), Strategy::Reference)
    }
}

/// An event id that is unique to the payment.
pub(crate) fn event(p: &Sample, name: &str) -> String {
    format!("{name}-{}", &p.tx.as_str()[..16])
}

/// A SUCCESS callback that matches the payment.
pub(crate) fn success(p: &Sample, event: &str) -> Callback {
    Callback {
        switch: SwitchName::new(SWITCH).unwrap(),
        event_id: EventId::new(event).unwrap(),
        reference: keys::submit(&p.tx).to_string(),
        status: CallbackStatus::Success,
        amount_minor: AMOUNT_MINOR,
        currency: "EUR".into(),
        reason: None,
        reason_code: None,
        posting: None,
        body: format!("SUCCESS {event}").into_bytes(),
    }
}

/// A FAILURE callback for the payment.
pub(crate) fn returned(p: &Sample, event: &str) -> Callback {
    Callback { status: CallbackStatus::Returned, ..success(p, event) }
}

pub(crate) fn failure(p: &Sample, event: &str) -> Callback {
    Callback {
        status: CallbackStatus::Failure,
        reason: Some("account closed".into()),
        body: format!("FAILURE {event}").into_bytes(),
        ..success(p, event)
    }
}

/// A matching report that the transfer settled, as an answer to a query or a cancel.
pub(crate) fn report(p: &Sample) -> SettledReport {
    SettledReport {
        switch: SwitchName::new(SWITCH).unwrap(),
        reference: keys::submit(&p.tx).to_string(),
        amount_minor: AMOUNT_MINOR,
        currency: "EUR".into(),
    }
}

/// Stores a return of a part of the payment's amount, with the id `{id}` of the return.
pub(crate) async fn return_part(bank: &super::Bank, p: &Sample, id: &str, amount_minor: i64) {
    let report = return_report(p, id, amount_minor);
    let event = EventId::new(format!("return-{id}-{}", &p.tx.as_str()[..16])).unwrap();
    bank.ledger.store_return(&event, &report, format!("{report:?}").as_bytes()).await.unwrap();
}

/// A return of a part of the payment's amount.
pub(crate) fn return_report(p: &Sample, id: &str, amount_minor: i64) -> ReturnReport {
    ReturnReport {
        switch: SwitchName::new(SWITCH).unwrap(),
        return_id: ReturnId::new(format!("{id}-{}", &p.tx.as_str()[..16])).unwrap(),
        reference: keys::submit(&p.tx).to_string(),
        amount_minor,
        currency: "EUR".into(),
        reason: Some("AC04: closed".into()),
    }
}
