//! A return: the receiving bank gives the money back, or the switch does after our recall. Before the debit nothing is charged;
//! after it an exception asks operators for the credit, once, whichever message reported the return first.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

mod support;

use jiff::Timestamp;
use payment_ledger::operator::decisions::{DecideError, DecisionRefusedError};
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_ledger::switch::callbacks::StoreCallbackOutcome;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::action::Correction;
use payment_protocol::cause::Cause;
use payment_protocol::facts::RecallRecord;
use payment_protocol::ids::SwitchName;
use payment_protocol::port::DebitOutcome;
use payment_protocol::report::{LineStatus, StatementLine};
use payment_protocol::rules::FinalStatusRuling;
use sqlx::PgPool;
use support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, SWITCH, Sample, Stage, event, report, returned, success};

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
    }
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
