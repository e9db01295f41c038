//! `steps::release`: allowed only without an attempt, for a void transfer, and after a recall.

use crate::support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Stage, failure};
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::port::{ReserveOutcome, SubmitProgress};
use payment_protocol::rules::ReleaseRefusal;
use sqlx::PgPool;

/// The outcome of a release at each stage, repeated, and the resulting state.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_release_is_done_or_refused_at_each_payment_stage(pool: PgPool) {
    let bank = Bank::new(pool);
    let cause = Cause::FailureReported { reason: "no such account".into() };
    let done = |cause: &Cause| ReleaseStepOutcome::Done(cause.clone());
    let not_allowed = || ReleaseStepOutcome::Refused(ReleaseRefusal::MayStillSettle);
    let debited = || ReleaseStepOutcome::Refused(ReleaseRefusal::HoldDebited);
    let held = FUNDS_MINOR - AMOUNT_MINOR;
    #[rustfmt::skip]
    let table = [
        // stage                    outcome                        state after    hold        available
        (Stage::Accepted,           done(&cause),                  "failed",      "none",     FUNDS_MINOR),
        (Stage::Fenced,             done(&cause),                  "failed",      "none",     FUNDS_MINOR),
        (Stage::Reserved,           done(&cause),                  "failed",      "released", FUNDS_MINOR),
        (Stage::Sent,               not_allowed(),                        "reserved",    "open",     held),
        (Stage::Cancelling,         not_allowed(),                        "cancelling",  "open",     held),
        (Stage::Differing,          not_allowed(),                        "reserved",    "open",     held),
        (Stage::Confirmed,          not_allowed(),                        "confirmed",   "open",     held),
        (Stage::Void,               done(&Cause::SlaExpired),       "timed_out",   "released", FUNDS_MINOR),
        (Stage::DebitRefused,             not_allowed(),                        "confirmed",   "open",     held),
        (Stage::Recalled,           done(&cause),                  "failed",      "released", FUNDS_MINOR),
        (Stage::RecallRefused,      not_allowed(),                        "confirmed",   "open",     held),
        (Stage::Settled,            debited(),                       "settled",      "debited",  held),
        (Stage::Released,           done(&Cause::SlaExpired),       "timed_out",   "released", FUNDS_MINOR),
        (Stage::ReleasedUnreserved, done(&Cause::ReserveUnknown),  "failed",      "none",     FUNDS_MINOR),
    ];
    for (stage, outcome, state, hold, available) in table {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        for _ in 0..2 {
            assert_eq!(bank.ledger.release(&p.id, &cause).await.unwrap(), outcome, "{stage:?}");
        }
        assert_eq!((bank.state(&p).await.as_str(), bank.hold(&p).await.as_str()), (state, hold), "{stage:?}");
        assert_eq!(bank.available(&p).await, available, "{stage:?}");
        bank.audit().await;
    }
}

/// A FAILURE callback is never definite, so it does not allow a release.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_failure_callback_does_not_allow_a_release(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    bank.ledger.store_callback(&failure(&p, "f")).await.unwrap();
    let cause = Cause::FailureReported { reason: "account closed".into() };
    bank.ledger.begin_cancel(&p.id, &cause, SubmitProgress::NotScheduled).await.unwrap();
    let refused = ReleaseStepOutcome::Refused(ReleaseRefusal::MayStillSettle);
    assert_eq!(bank.ledger.release(&p.id, &cause).await.unwrap(), refused);
    bank.audit().await;
}

/// The first recorded cause determines the final state, whatever later calls pass.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_first_compensation_cause_determines_the_final_state(pool: PgPool) {
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        (Cause::SlaExpired,                                  "timed_out"),
        (Cause::CustomerCancel,                             "cancelled"),
        (Cause::SubmitUnknown,                              "failed"),
        (Cause::SubmitRefused { reason: "limit".into() },   "failed"),
        (Cause::FailureReported { reason: "closed".into() },"failed"),
        (Cause::Interrupted,                                "failed"),
    ];
    for (first, end) in table {
        let p = bank.payment_at(Stage::Sent, first.code()).await;
        bank.ledger.begin_cancel(&p.id, &first, SubmitProgress::NotScheduled).await.unwrap();
        for later in [Cause::CustomerCancel, Cause::SlaExpired, Cause::Interrupted] {
            bank.ledger.begin_cancel(&p.id, &later, SubmitProgress::NotScheduled).await.unwrap();
        }
        bank.ledger.record_void(&p.id, payment_protocol::cancel::VoidReason::Cancelled).await.unwrap();
        let released = bank.ledger.release(&p.id, &Cause::Interrupted).await.unwrap();
        assert_eq!(released, ReleaseStepOutcome::Done(first.clone()));
        assert_eq!(bank.state(&p).await, end);
    }
    bank.audit().await;
}

/// R8: a release without a reserve fences a reserve that may still be in flight.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r8_a_reserve_after_the_release_is_refused(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Accepted, "k").await;
    bank.ledger.release(&p.id, &Cause::ReserveUnknown).await.unwrap();
    assert_eq!(bank.reserve(&p).await, ReserveOutcome::Refused(ReserveRefusal::Fenced));
    assert_eq!((bank.available(&p).await, bank.hold(&p).await.as_str()), (FUNDS_MINOR, "none"));
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_released_amount_can_be_reserved_again(pool: PgPool) {
    let bank = Bank::new(pool);
    let account = bank.open("purse", AMOUNT_MINOR).await;
    let mut last = None;
    for key in ["a", "b", "c"] {
        let order =
            payment_ledger::steps::accept::NewPayment { source_account: account.clone(), ..bank.order(key) };
        let p = bank.accept(&order).await;
        bank.advance(&p, Stage::Released).await;
        last = Some(p);
    }
    assert_eq!(bank.available(&last.unwrap()).await, AMOUNT_MINOR);
    bank.audit().await;
}

/// A freeze refuses debits, not releases.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_frozen_account_receives_its_release(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Void, "k").await;
    bank.freeze(&p).await;
    assert_eq!(
        bank.ledger.release(&p.id, &Cause::SlaExpired).await.unwrap(),
        ReleaseStepOutcome::Done(Cause::SlaExpired)
    );
    assert_eq!(bank.available(&p).await, FUNDS_MINOR);
    bank.audit().await;
}
