//! A return: the receiving bank gives the money back, or the switch does after our recall. Before the debit nothing is charged;
//! after it an exception asks operators for the credit, once, whichever message reported the return first.

use crate::support::{
    AMOUNT_MINOR, Bank, FUNDS_MINOR, SWITCH, Sample, Stage, event, report, return_part, return_report,
    returned, success,
};
use jiff::Timestamp;
use payment_ledger::audit::reconcile::payments::Sources;
use payment_ledger::operator::decisions::{DecideError, DecisionRefusedError};
use payment_ledger::steps::accept::NewPayment;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::SwitchProfile;
use payment_protocol::action::{Action, Correction};
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::drift::{Drift, Tolerance};
use payment_protocol::facts::RecallRecord;
use payment_protocol::ids::{EventId, SwitchName};
use payment_protocol::port::DebitOutcome;
use payment_protocol::report::{LineStatus, StatementLine};
use payment_protocol::returns::{Posting, PostingReport, ReturnReport};
use payment_protocol::rules::{AttemptRuling, FinalStatusRuling, NotSent};
use sqlx::PgPool;

const HELD: i64 = FUNDS_MINOR - AMOUNT_MINOR;

/// The message that reports a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedBy {
    Callback,
    Query,
    Statement,
}

const ALL: [ReportedBy; 3] = [ReportedBy::Callback, ReportedBy::Query, ReportedBy::Statement];

/// Reports the return of the payment's money, as the service receives it.
async fn report_return(bank: &Bank, p: &Sample, by: ReportedBy) {
    match by {
        ReportedBy::Callback => {
            let callback = returned(p, &event(p, "returned"));
            bank.ledger.store_callback(&callback).await.unwrap();
        }
        ReportedBy::Query => {
            bank.ledger.record_returned(&p.id, &report(p), FinalStatusSource::Query).await.unwrap();
        }
        ReportedBy::Statement => {
            let line = |status| StatementLine {
                cursor: format!("{}-{status:?}", p.id),
                transfer_id: format!("t-{}", p.id),
                reference: Some(report(p).reference),
                status,
                amount_minor: AMOUNT_MINOR,
                currency: "EUR".into(),
                return_id: None,
                finished_at: Timestamp::now(),
            };
            let lines = [line(LineStatus::Settled), line(LineStatus::Returned)];
            bank.ledger.store_lines(&SwitchName::new(SWITCH).unwrap(), &lines).await.unwrap();
            for (id, report) in bank.ledger.unrecorded_returns(std::slice::from_ref(&p.id)).await.unwrap() {
                bank.ledger.record_returned(&id, &report, FinalStatusSource::Statement).await.unwrap();
            }
        }
    }
}

/// Before the debit: the payment is never debited, and its hold is released.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn money_that_came_back_before_the_debit_is_not_charged(pool: PgPool) {
    let bank = Bank::new(pool);
    for stage in [Stage::Sent, Stage::Confirmed, Stage::Cancelling, Stage::DebitRefused] {
        for by in ALL {
            let row = format!("{stage:?} {by:?}");
            let p = bank.payment_at(stage, &row).await;
            report_return(&bank, &p, by).await;
            assert_eq!(bank.column(&p, "final_status").await.as_deref(), Some("returned"), "{row}");
            assert_eq!(bank.debit(&p).await, DebitOutcome::Returned, "{row}");
            assert_eq!(bank.ledger.begin_recall(&p.id).await.unwrap(), Some(RecallRecord::Recalled), "{row}");
            let released = bank.ledger.release(&p.id, &Cause::Returned).await.unwrap();
            assert!(matches!(released, ReleaseStepOutcome::Done(_)), "{row}: {released:?}");
            assert_eq!(bank.available(&p).await, FUNDS_MINOR, "{row}");
            assert_eq!(bank.exceptions(&p).await, Vec::<String>::new(), "{row}");
        }
    }
    bank.audit().await;
}

/// After the debit: one exception, whose return credit works once, whichever messages report the return.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn money_that_came_back_after_the_debit_is_credited_once(pool: PgPool) {
    let bank = Bank::new(pool);
    for by in ALL {
        let row = format!("{by:?}");
        let p = bank.payment_at(Stage::Settled, &row).await;
        report_return(&bank, &p, by).await;
        assert_eq!(bank.exceptions(&p).await, ["returned_after_debit"], "{row}");
        for again in ALL {
            report_return(&bank, &p, again).await;
        }
        assert_eq!(bank.exceptions(&p).await, ["returned_after_debit"], "{row}: reported again");
        assert_eq!((bank.state(&p).await.as_str(), bank.available(&p).await), ("settled", HELD), "{row}");
        let exception = bank.open_exception(&p).await;
        let proposed = bank
            .ledger
            .propose_correction(exception, Correction::ReturnCredit, "Ann", "came back", Some("line 3"))
            .await
            .unwrap();
        bank.ledger.confirm(&proposed.decision_id, "Bob", "I agree").await.unwrap();
        assert_eq!(bank.available(&p).await, FUNDS_MINOR, "{row}: credited");
        // A SUCCESS that arrives late is older than the return.
        let late = success(&p, &event(&p, "late"));
        assert_eq!(
            bank.ledger.store_callback(&late).await.unwrap(),
            StoreCallbackOutcome::New(None),
            "{row}"
        );
        assert_eq!(bank.column(&p, "final_status").await.as_deref(), Some("returned"), "{row}");
    }
    bank.audit().await;
}

/// A late debit would charge the customer for money that came back.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_late_debit_of_a_returned_transfer_is_refused(pool: PgPool) {
    let bank = Bank::new(pool);
    for by in ALL {
        let p = bank.payment_at(Stage::Released, &format!("{by:?}")).await;
        bank.ledger.store_callback(&success(&p, &event(&p, "late"))).await.unwrap();
        let exception = bank.open_exception(&p).await;
        report_return(&bank, &p, by).await;
        let refused = bank
            .ledger
            .propose_correction(exception, Correction::LateDebit, "Ann", "found", Some("line 3"))
            .await;
        let Err(DecideError::Refused(refused)) = refused else { panic!("{by:?}: {refused:?}") };
        assert_eq!(refused, DecisionRefusedError::MoneyReturned, "{by:?}");
        // A letter of the switch may say that it reported the return in error.
        let opened =
            bank.ledger.open_exception_by_operator(&p.id, "Ann", "the switch's letter").await.unwrap();
        let proposed = bank
            .ledger
            .propose_correction(opened, Correction::LateDebit, "Ann", "never returned", Some("letter 7"))
            .await
            .unwrap();
        bank.ledger.confirm(&proposed.decision_id, "Bob", "I agree").await.unwrap();
        assert_eq!(bank.available(&p).await, HELD, "{by:?}");
    }
    bank.audit().await;
}

/// A return that differs from the payment, or of a payment of which nothing was sent, moves nothing and is an exception.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_return_that_is_not_this_payments_is_an_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Settled, "other amount").await;
    let other = payment_protocol::report::SettledReport { amount_minor: 1, ..report(&p) };
    let ruling = bank.ledger.record_returned(&p.id, &other, FinalStatusSource::Query).await.unwrap();
    assert!(matches!(ruling, FinalStatusRuling::Differs(_)), "{ruling:?}");
    assert_eq!(bank.exceptions(&p).await, ["confirmation_mismatch"]);
    assert_eq!(bank.column(&p, "final_status").await.as_deref(), Some("settled"));
    let p = bank.payment_at(Stage::Reserved, "not sent").await;
    report_return(&bank, &p, ReportedBy::Callback).await;
    assert_eq!(bank.exceptions(&p).await, ["settled_without_attempt"]);
    assert_eq!(bank.column(&p, "final_status").await, None);
}

/// What the payment's customer pays in the end.
async fn charged(bank: &Bank, p: &Sample) -> i64 {
    FUNDS_MINOR - bank.available(p).await
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i30_partial_returns_are_booked_once_each_and_the_end_stays_settled(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Settled, "parts").await;
    for (id, minor, left) in [("a", 400, 600), ("b", 500, 100)] {
        return_part(&bank, &p, id, minor).await;
        assert_eq!(charged(&bank, &p).await, left);
        // The same return under another event id is no second one.
        let again = EventId::new(format!("again-{id}")).unwrap();
        bank.ledger.store_return(&again, &return_report(&p, id, minor), b"again").await.unwrap();
        assert_eq!(charged(&bank, &p).await, left, "the return {id} was booked twice");
    }
    assert_eq!(bank.exceptions(&p).await, [""; 0]);
    // More than is left, another amount under a known id, another switch and another currency move nothing.
    let event = |n: &str| EventId::new(n).unwrap();
    let other_switch =
        ReturnReport { switch: SwitchName::new("southern").unwrap(), ..return_report(&p, "s", 1) };
    let other_currency = ReturnReport { currency: "USD".into(), ..return_report(&p, "u", 1) };
    for (n, report) in [
        ("too much", return_report(&p, "c", 101)),
        ("reused", return_report(&p, "a", 100)),
        ("switch", other_switch),
        ("currency", other_currency),
        ("nothing", return_report(&p, "z", 0)),
    ] {
        bank.ledger.store_return(&event(&n.replace(' ', "-")), &report, n.as_bytes()).await.unwrap();
        assert_eq!(charged(&bank, &p).await, 100, "{n}");
    }
    assert_eq!(bank.exceptions(&p).await, ["return_differs"; 5]);
    return_part(&bank, &p, "rest", 100).await;
    assert_eq!((charged(&bank, &p).await, bank.internal("escrow").await), (0, 0));
    assert_eq!(
        (bank.state(&p).await.as_str(), bank.column(&p, "returned_minor").await.as_deref()),
        ("settled", Some("1000"))
    );
    // The return of the whole transfer changes nothing.
    report_return(&bank, &p, ReportedBy::Query).await;
    assert_eq!(bank.exceptions(&p).await, ["return_differs"; 5]);
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i30_a_return_before_the_debit_is_kept_and_booked_with_it(pool: PgPool) {
    let bank = Bank::new(pool);
    for stage in [Stage::Sent, Stage::Confirmed] {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        return_part(&bank, &p, "early", 300).await;
        assert_eq!(bank.available(&p).await, HELD, "{stage:?}: nothing is charged yet");
        if stage == Stage::Sent {
            bank.ledger.store_callback(&success(&p, &event(&p, "late"))).await.unwrap();
        }
        assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
        assert_eq!(charged(&bank, &p).await, 700, "{stage:?}");
    }
    // Two that were each kept alone are together more than was charged: the second is for operators.
    let twice = bank.payment_at(Stage::Confirmed, "twice").await;
    return_part(&bank, &twice, "twice-1", 300).await;
    return_part(&bank, &twice, "twice-2", 800).await;
    assert!(bank.exceptions(&twice).await.is_empty());
    assert_eq!(bank.debit(&twice).await, DebitOutcome::Done);
    assert_eq!(
        (charged(&bank, &twice).await, bank.exceptions(&twice).await),
        (700, vec!["return_differs".to_owned()])
    );
    // Money that came back had been accepted: an absence at the switch does not make the transfer void.
    let accepted = bank.payment_at(Stage::Sent, "accepted").await;
    return_part(&bank, &accepted, "accepted-1", 300).await;
    let absent = bank.ledger.record_void(&accepted.id, VoidReason::DeadlinePassed).await.unwrap();
    assert_eq!(absent, FinalStatusRuling::NoAttempt);
    // Released, because the return of the whole transfer was known: nothing is to be paid.
    let released = bank.payment_at(Stage::Sent, "released").await;
    report_return(&bank, &released, ReportedBy::Query).await;
    bank.ledger.release(&released.id, &Cause::Returned).await.unwrap();
    return_part(&bank, &released, "known", AMOUNT_MINOR).await;
    assert_eq!((charged(&bank, &released).await, bank.exceptions(&released).await.len()), (0, 0));
    // Money that comes back of a payment that was never charged for another reason is for operators.
    let void = bank.payment_at(Stage::Released, "void").await;
    return_part(&bank, &void, "strange", AMOUNT_MINOR).await;
    assert_eq!(
        (charged(&bank, &void).await, bank.exceptions(&void).await),
        (0, vec!["return_differs".to_owned()])
    );
    bank.audit().await;
}

/// A return that arrives after an end without a charge is booked by the late debit that operators decide, unless they have closed
/// its exception before.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i30_a_return_after_an_uncharged_end_is_booked_with_a_late_debit(pool: PgPool) {
    let bank = Bank::new(pool);
    for (key, is_closed, left) in [("open", false, 700), ("closed", true, 1_000)] {
        let p = bank.payment_at(Stage::Released, key).await;
        return_part(&bank, &p, key, 300).await;
        assert_eq!(bank.exceptions(&p).await, ["return_differs"]);
        let own = bank.open_exception(&p).await;
        bank.ledger.store_callback(&success(&p, &event(&p, "late"))).await.unwrap();
        if is_closed {
            bank.ledger.close_exception(own, "Ann", "paid out by hand").await.unwrap();
        }
        bank.correct(&p, Correction::LateDebit).await.unwrap();
        assert_eq!(charged(&bank, &p).await, left, "{key}");
    }
    bank.audit().await;
}

/// What came back before an uncharged end is one exception: operators who close it have decided what becomes of the money.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i30_a_kept_return_whose_exception_was_closed_is_not_credited_with_a_late_debit(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "kept").await;
    return_part(&bank, &p, "kept", 300).await;
    bank.needs_operator(&p, OperatorReason::QueriesSpent).await;
    let decision = bank.decide(&p, Action::Release).await;
    bank.ledger.release_by_decision(&p.id, &decision).await.unwrap();
    let own = bank.open_exception(&p).await;
    bank.ledger.close_exception(own, "Ann", "paid out by hand").await.unwrap();
    bank.ledger.store_callback(&success(&p, &event(&p, "late"))).await.unwrap();
    bank.correct(&p, Correction::LateDebit).await.unwrap();
    assert_eq!(charged(&bank, &p).await, 1_000);
    bank.audit().await;
}

/// Money that comes back of a payment without a recorded attempt: the record may have been lost, so nothing is released unasked.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i30_a_return_without_an_attempt_is_an_exception_and_contradicts_never_sent(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Reserved, "lost").await;
    return_part(&bank, &p, "lost", 300).await;
    assert_eq!(bank.exceptions(&p).await, ["settled_without_attempt"]);
    assert_eq!(bank.attempt(&p).await, AttemptRuling::NotSent(NotSent::ReportedWithoutAttempt));
    for reason in [VoidReason::NeverSent, VoidReason::NotInClosedStatement] {
        assert_eq!(bank.ledger.record_void(&p.id, reason).await.unwrap(), FinalStatusRuling::NoAttempt);
    }
    bank.audit().await;
}

/// A return is paid to the bearer of the amount: the customer, the bank's claim, or its loss.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i30_a_return_is_paid_to_the_bearer_of_the_amount(pool: PgPool) {
    let bank = Bank::new(pool);
    let profile = SwitchProfile { restore_customer_after_ms: Some(0), ..crate::support::profile() };
    let mut claimed = Vec::new();
    for key in ["collected later", "written off"] {
        let order = NewPayment { profile: profile.clone(), ..bank.order(key) };
        let p = bank.order_at(Stage::Sent, order).await;
        bank.ledger.restore(&p.id).await.unwrap();
        bank.freeze(&p).await;
        bank.ledger.store_callback(&success(&p, &event(&p, "late"))).await.unwrap();
        assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
        return_part(&bank, &p, "first", 300).await;
        bank.unfreeze(&p).await;
        claimed.push(p);
    }
    assert_eq!(bank.internal("claims").await, -1_400);
    let mut decide = Vec::new();
    for (p, correction) in claimed.iter().zip([Correction::LateDebit, Correction::WriteOff]) {
        let exception = bank.open_exception(p).await;
        let proposed = bank
            .ledger
            .propose_correction(exception, correction, "Ann", "late", Some("letter 9"))
            .await
            .unwrap();
        bank.ledger.confirm(&proposed.decision_id, "Bob", "I agree").await.unwrap();
        decide.push(charged(&bank, p).await);
    }
    let collected = "SELECT body ->> 'charged_minor' FROM outbox WHERE kind = 'transfer_charged'";
    assert_eq!(bank.words(collected).await, ["700"], "the rest, of the one that is collected");
    assert_eq!(
        (decide, bank.internal("claims").await, bank.internal("losses").await),
        (vec![700, 0], 0, -700)
    );
    for p in &claimed {
        return_part(&bank, p, "second", 700).await;
        assert_eq!(charged(&bank, p).await, 0);
    }
    assert_eq!((bank.internal("losses").await, bank.internal("escrow").await), (0, 0));
    bank.audit().await;
}

/// A line of the statement for each return books those whose callbacks were lost, and no other twice.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i30_a_listed_return_is_booked_whether_or_not_its_callback_arrived(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Settled, "listed").await;
    return_part(&bank, &p, "reported", 400).await;
    let line = |cursor: &str, status, return_id: Option<ReturnReport>, amount_minor| StatementLine {
        cursor: cursor.into(),
        transfer_id: format!("t-{}", p.id),
        reference: Some(report(&p).reference),
        status,
        return_id: return_id.map(|report| report.return_id),
        amount_minor,
        currency: "EUR".into(),
        finished_at: Timestamp::now(),
    };
    let lines = [
        line("1", LineStatus::Settled, None, AMOUNT_MINOR),
        line("2", LineStatus::Returned, Some(return_report(&p, "reported", 400)), 400),
        line("3", LineStatus::Returned, Some(return_report(&p, "lost", 600)), 600),
    ];
    let switch = SwitchName::new(SWITCH).unwrap();
    for read in 1..=lines.len() {
        bank.ledger.store_lines(&switch, &lines[..read]).await.unwrap();
        bank.ledger.record_listed_returns(std::slice::from_ref(&p.id)).await.unwrap();
        assert!(bank.ledger.unrecorded_returns(std::slice::from_ref(&p.id)).await.unwrap().is_empty());
        let sources = Sources { statements: vec![switch.clone()], workflows: None };
        let compared = bank.ledger.compare(&sources, std::slice::from_ref(&p.id)).await.unwrap();
        let drift: Vec<_> =
            compared.iter().flat_map(|one| one.findings(Tolerance { grace_s: 0, cancelling_s: 0 })).collect();
        assert!(drift.is_empty(), "after {read} lines: {drift:?}");
    }
    assert_eq!(charged(&bank, &p).await, 0);
    // Another amount under a known id is an exception, once, also after operators have closed it.
    bank.ledger
        .store_lines(&switch, &[line("4", LineStatus::Returned, Some(return_report(&p, "lost", 600)), 500)])
        .await
        .unwrap();
    bank.ledger.record_listed_returns(std::slice::from_ref(&p.id)).await.unwrap();
    let exception = bank.open_exception(&p).await;
    bank.ledger.close_exception(exception, "Ann", "a typing error").await.unwrap();
    assert_eq!(bank.ledger.record_listed_returns(std::slice::from_ref(&p.id)).await.unwrap(), 0);
    assert_eq!(bank.exceptions(&p).await.len(), 1);
    bank.audit().await;
}

/// The statement lists a return after its callback: until the grace period has passed, that is no drift.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i30_a_return_that_the_statement_does_not_list_yet_is_no_drift(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Settled, "not listed").await;
    return_part(&bank, &p, "whole", AMOUNT_MINOR).await;
    let switch = SwitchName::new(SWITCH).unwrap();
    let settled = StatementLine {
        cursor: "1".into(),
        transfer_id: format!("t-{}", p.id),
        reference: Some(report(&p).reference),
        status: LineStatus::Settled,
        return_id: None,
        amount_minor: AMOUNT_MINOR,
        currency: "EUR".into(),
        finished_at: Timestamp::from_second(0).unwrap(),
    };
    bank.ledger.store_lines(&switch, &[settled]).await.unwrap();
    let sources = Sources { statements: vec![switch], workflows: None };
    let compared = bank.ledger.compare(&sources, std::slice::from_ref(&p.id)).await.unwrap();
    let drift = |grace_s| {
        compared[0].findings(Tolerance { grace_s, cancelling_s: 0 }).map(|one| one.drift).collect::<Vec<_>>()
    };
    assert_eq!((drift(600), drift(0)), (vec![], vec![Drift::SettledNotDebited]));
    bank.audit().await;
}

/// Where the money of a settled transfer is moves none (I31).
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i31_a_report_of_the_posting_moves_no_money(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "accepted without posting").await;
    let accepted = Callback { posting: Some(Posting::Pending), ..success(&p, &event(&p, "acwp")) };
    bank.ledger.store_callback(&accepted).await.unwrap();
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    let before = bank.number("SELECT count(*) FROM journal").await;
    for (n, posting) in Posting::ALL.iter().enumerate() {
        let report = PostingReport {
            reference: report(&p).reference,
            posting: *posting,
            amount_minor: AMOUNT_MINOR,
            currency: "EUR".into(),
            reason: None,
        };
        let switch = SwitchName::new(SWITCH).unwrap();
        let event = EventId::new(format!("posting-{n}")).unwrap();
        for expected in [StoreCallbackOutcome::New(None), StoreCallbackOutcome::Duplicate] {
            assert_eq!(bank.ledger.store_posting(&switch, &event, &report, b"x").await.unwrap(), expected);
        }
    }
    assert_eq!(
        (bank.number("SELECT count(*) FROM journal").await, bank.state(&p).await),
        (before, "settled".into())
    );
    let lines = bank
        .words("SELECT detail FROM timeline WHERE detail LIKE '%receiving bank%' ORDER BY entry_id")
        .await;
    assert_eq!(lines.len(), 5, "{lines:?}");
    bank.audit().await;
}
