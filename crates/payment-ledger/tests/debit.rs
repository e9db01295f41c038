//! Settle: once, after the switch's matching SUCCESS; refused for good where the account was frozen
//! since the hold (Path C).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use payment_protocol::cause::Cause;
use payment_protocol::port::DebitOutcome;
use sqlx::PgPool;
use support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Stage, success};

/// What settle answers at each stage, twice, and what is left.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn at_each_stage_settle_does_what_the_switch_said(pool: PgPool) {
    use DebitOutcome::{Differs, Done, NotConfirmed, Refused};
    let bank = Bank::new(pool);
    let barred = || Refused { reason: "frozen_account".into() };
    let held = FUNDS_MINOR - AMOUNT_MINOR;
    #[rustfmt::skip]
    let table = [
        // stage                    outcome       state after     hold        available
        (Stage::Accepted,           NotConfirmed, "accepted",     "none",     FUNDS_MINOR),
        (Stage::Fenced,             NotConfirmed, "accepted",     "none",     FUNDS_MINOR),
        (Stage::Reserved,           NotConfirmed, "reserved",     "open",     held),
        (Stage::Sent,               NotConfirmed, "reserved",     "open",     held),
        (Stage::Cancelling,         NotConfirmed, "cancelling",   "open",     held),
        (Stage::Differing,          Differs,      "reserved",     "open",     held),
        (Stage::Confirmed,          Done,         "settled",      "debited",  held),
        (Stage::Void,               NotConfirmed, "cancelling",   "open",     held),
        (Stage::Barred,             barred(),     "confirmed",    "open",     held),
        (Stage::Recalled,           barred(),     "confirmed",    "open",     held),
        (Stage::RecallRefused,      barred(),     "confirmed",    "open",     held),
        (Stage::Settled,            Done,         "settled",      "debited",  held),
        (Stage::Released,           NotConfirmed, "timed_out",    "released", FUNDS_MINOR),
        (Stage::ReleasedUnreserved, NotConfirmed, "failed",       "none",     FUNDS_MINOR),
        (Stage::Rejected,           NotConfirmed, "rejected",     "none",     FUNDS_MINOR),
    ];
    for (stage, outcome, state, hold, available) in table {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        for _ in 0..2 {
            assert_eq!(bank.debit(&p).await, outcome, "{stage:?}");
        }
        assert_eq!((bank.state(&p).await.as_str(), bank.hold(&p).await.as_str()), (state, hold), "{stage:?}");
        assert_eq!(bank.available(&p).await, available, "{stage:?}");
        bank.audit().await;
    }
}

/// Path C (S0.10): the refusal is recorded under settle's key before anything else is asked, and
/// stands when the freeze has gone. Otherwise a paused first attempt would debit what was recalled.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_10_a_frozen_account_is_refused_for_good(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Confirmed, "k").await;
    bank.freeze(&p).await;
    let refused = DebitOutcome::Refused { reason: "frozen_account".into() };
    assert_eq!(bank.debit(&p).await, refused);
    assert_eq!(bank.operation(&format!("{}:debit", p.tx)).await, ["refused frozen_account"]);
    bank.unfreeze(&p).await;
    assert_eq!(bank.debit(&p).await, refused);
    assert_eq!(bank.hold(&p).await, "open");
    bank.audit().await;
}

/// A freeze after the debit is too late to matter.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_freeze_after_the_debit_changes_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Settled, "k").await;
    bank.freeze(&p).await;
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    bank.audit().await;
}

/// A closed account is as little debited as a frozen one.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_closed_account_is_refused_by_its_own_word(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Confirmed, "k").await;
    bank.sql(&format!("UPDATE accounts SET status = 'closed' WHERE account_id = '{}'", p.account)).await;
    assert_eq!(bank.debit(&p).await, DebitOutcome::Refused { reason: "closed_account".into() });
    bank.audit().await;
}

/// A matching SUCCESS after a differing one settles: the payment kept listening.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_matching_success_settles_after_a_differing_one(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Differing, "k").await;
    assert_eq!(bank.debit(&p).await, DebitOutcome::Differs);
    bank.ledger.store_callback(&success(&p, "at-last")).await.unwrap();
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    assert_eq!(bank.exceptions(&p).await, ["confirmation_mismatch"]);
    bank.audit().await;
}

/// A payment that the switch settled while we asked to cancel is debited, whatever the cause was.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_success_while_cancelling_settles_forward(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Cancelling, "k").await;
    bank.ledger.store_callback(&success(&p, "late")).await.unwrap();
    let begun = bank.ledger.begin_cancel(&p.id, &Cause::CustomerCancel).await.unwrap();
    assert_eq!(begun.final_status, Some(payment_protocol::facts::FinalStatus::Settled));
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    bank.audit().await;
}

/// FinalStatusSource, holding and escrow after a settle: the amount has moved from the first to the last.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_13_the_amount_moves_from_source_to_escrow_once(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Settled, "k").await;
    bank.debit(&p).await;
    let sql = "SELECT concat_ws(' ', kind, debit_account, '->', credit_account, amount_minor, operation_key)
               FROM journal ORDER BY entry_id";
    assert_eq!(
        bank.words(sql).await,
        [
            format!("fund internal:funding:EUR -> from-k {FUNDS_MINOR} fund:from-k"),
            format!("reserve from-k -> internal:holding:EUR {AMOUNT_MINOR} {}:reserve", p.id),
            format!("debit internal:holding:EUR -> internal:escrow:EUR {AMOUNT_MINOR} {}:debit", p.tx),
        ]
    );
    bank.audit().await;
}
