//! The rules on callbacks where a query must confirm them (`confirm_by_query`): what is believed, stored and delivered.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use payment_protocol::SwitchProfile;
use payment_protocol::facts::{Facts, FinalStatus, HoldStatus};
use payment_protocol::ids::SwitchName;
use payment_protocol::money::Money;
use payment_protocol::profile::ConfirmByQuery;
use payment_protocol::reject::{Reject, RejectMeaning};
use payment_protocol::report::{Difference, ExpectedTransfer, SettledReport};
use payment_protocol::rules::{self, FinalStatusRuling};
use payment_protocol::state::PaymentState;
use support::{full_profile, payment, report};

const SETTLED: Option<FinalStatus> = Some(FinalStatus::Settled);
const VOID: Option<FinalStatus> = Some(FinalStatus::Void);

fn profile(confirm_by_query: ConfirmByQuery) -> SwitchProfile {
    SwitchProfile { confirm_by_query, ..full_profile() }
}

fn money() -> Money {
    payment(0).money
}

/// Sent once, and nothing was heard.
fn sent() -> Facts {
    Facts { state: PaymentState::Submitted, hold: Some(HoldStatus::Open), attempts: 1, ..Facts::accepted() }
}

fn ended(state: PaymentState, final_status: Option<FinalStatus>) -> Facts {
    Facts { state, final_status, ..sent() }
}

#[test]
fn a_query_is_needed_while_nothing_definite_is_known_and_the_profile_wants_it() {
    let minor = u64::try_from(money().amount_minor()).unwrap();
    for (name, confirm_by_query, facts, expected) in [
        ("always", ConfirmByQuery::Always, sent(), true),
        ("never", ConfirmByQuery::Never, sent(), false),
        ("a greater amount", ConfirmByQuery::Above(minor - 1), sent(), true),
        ("this amount", ConfirmByQuery::Above(minor), sent(), false),
        ("a definite answer", ConfirmByQuery::Always, Facts { final_status: SETTLED, ..sent() }, false),
        ("the end", ConfirmByQuery::Always, ended(PaymentState::Failed, None), false),
    ] {
        assert_eq!(rules::needs_query(&facts, &profile(confirm_by_query), money()), expected, "{name}");
    }
}

#[test]
fn a_callback_about_money_is_unconfirmed_where_it_would_change_an_open_payment_of_its_switch() {
    use FinalStatus::{Returned, Settled, Void};
    let always = profile(ConfirmByQuery::Always);
    let decided = Facts { final_status: SETTLED, ..sent() };
    let unsent = Facts { attempts: 0, ..sent() };
    let other_amount = SettledReport { amount_minor: 1, ..report() };
    let other_switch = SettledReport { switch: SwitchName::new("southern").unwrap(), ..report() };
    for (name, facts, report, reported, expected) in [
        ("a success", sent(), report(), Settled, true),
        ("a success with another amount", sent(), other_amount.clone(), Settled, true),
        ("a success of another switch", sent(), other_switch, Settled, false),
        ("a success without an attempt", unsent, report(), Settled, false),
        ("a success after a definite answer", decided.clone(), report(), Settled, false),
        ("a success after the end", ended(PaymentState::Failed, None), report(), Settled, false),
        ("a return", sent(), report(), Returned, true),
        ("a return after a definite answer", decided, report(), Returned, true),
        ("a return after the end", ended(PaymentState::Settled, SETTLED), report(), Returned, false),
        ("a reject", sent(), report(), Void, false),
    ] {
        let transfer = ExpectedTransfer::from(&payment(0));
        let unconfirmed = |profile| rules::is_unconfirmed(&facts, profile, &transfer, &report, reported);
        assert_eq!(unconfirmed(&always), expected, "{name}");
        assert!(!unconfirmed(&profile(ConfirmByQuery::Never)), "{name}: a callback is believed");
    }
}

#[test]
fn a_report_stays_unconfirmed_until_the_switch_answers() {
    let reported = Facts { report_to_confirm: true, ..sent() };
    for (name, facts, unconfirmed, says) in [
        ("nothing was reported", sent(), false, None),
        ("a success was reported", reported.clone(), true, SETTLED),
        // It has an exception of its own.
        ("without an attempt", Facts { reported_without_attempt: true, ..reported.clone() }, false, None),
        ("confirmed", Facts { final_status: SETTLED, ..reported.clone() }, false, SETTLED),
        ("denied", Facts { final_status: VOID, ..reported.clone() }, false, VOID),
        ("ended", Facts { state: PaymentState::Failed, ..reported }, false, None),
    ] {
        assert_eq!(rules::has_unconfirmed_report(&facts), unconfirmed, "{name}");
        assert_eq!(rules::reported(&facts), says, "{name}");
    }
}

/// A flood of callbacks gives an open payment no more to do than the first of each kind.
#[test]
fn a_repeated_callback_is_delivered_where_it_is_believed_or_the_first_of_its_kind() {
    use FinalStatus::{Returned, Settled, Void};
    let after = |kind| match kind {
        Settled => Facts { report_to_confirm: true, ..sent() },
        Returned => Facts { return_to_confirm: true, ..sent() },
        Void => Facts { failure_reported: true, ..sent() },
    };
    let (always, never) = (profile(ConfirmByQuery::Always), profile(ConfirmByQuery::Never));
    for reported in [Settled, Returned, Void] {
        for before in [Settled, Returned, Void] {
            let facts = after(before);
            let delivered = rules::delivers_again(&facts, &always, money(), reported);
            assert_eq!(delivered, before != reported, "{reported:?} after {before:?}");
            assert!(rules::delivers_again(&facts, &never, money(), reported), "a callback is believed");
            let facts = Facts { state: PaymentState::Settled, ..facts };
            assert!(!rules::delivers_again(&facts, &never, money(), reported), "the payment has ended");
        }
        assert!(rules::delivers_again(&sent(), &always, money(), reported), "the first {reported:?}");
    }
}

/// Were it believed, it would pass for the reason of a SUCCESS that follows.
#[test]
fn a_returned_callback_contradicts_an_uncharged_end_where_a_query_must_confirm_it() {
    use FinalStatusRuling::{Contradicts, Differs, First, NoAttempt};
    let (always, never) = (profile(ConfirmByQuery::Always), profile(ConfirmByQuery::Never));
    let failed = ended(PaymentState::Failed, None);
    let other_amount = SettledReport { amount_minor: 1, ..report() };
    for (name, facts, profile, report, expected) in [
        ("open", sent(), &always, report(), First),
        ("ended without a charge", failed.clone(), &always, report(), Contradicts),
        ("ended, and a callback is believed", failed.clone(), &never, report(), First),
        ("settled", ended(PaymentState::Settled, SETTLED), &always, report(), First),
        // Released, although the switch has said that it settled: operators know.
        ("ended after a success", ended(PaymentState::Failed, SETTLED), &always, report(), First),
        ("charged at its end", ended(PaymentState::Settled, None), &always, report(), First),
        ("another amount", failed.clone(), &always, other_amount, Differs(Difference::Amount)),
        ("never sent", Facts { attempts: 0, ..failed }, &always, report(), NoAttempt),
    ] {
        let transfer = ExpectedTransfer::from(&payment(0));
        assert_eq!(rules::returned_callback(&facts, profile, &transfer, &report), expected, "{name}");
    }
}

#[test]
fn a_final_reject_by_callback_is_believed_where_no_query_is_needed() {
    let final_rejects = |confirm_by_query| SwitchProfile {
        reject_is_final: true,
        reject_codes: [("AC04".into(), RejectMeaning::Dead)].into(),
        ..profile(confirm_by_query)
    };
    let reject = Reject { code: Some("AC04".into()), reason: "closed account".into() };
    let ruled = |confirm_by_query| {
        rules::final_reject_callback(&sent(), &final_rejects(confirm_by_query), money(), &reject)
    };
    assert_eq!(ruled(ConfirmByQuery::Never), Some(FinalStatusRuling::First));
    assert_eq!(ruled(ConfirmByQuery::Always), None);
}
