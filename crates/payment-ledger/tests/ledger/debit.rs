//! `steps::debit`: the hold is debited once, after a matching SUCCESS. If the account was frozen since the reserve, the refusal
//! is final (Path C).

use crate::support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Stage, success};
use payment_protocol::cause::Cause;
use payment_protocol::port::{DebitOutcome, SubmitProgress};
use sqlx::PgPool;

/// The outcome of a debit at each stage, repeated, and the resulting state.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_debit_is_allowed_by_the_final_status_at_each_payment_stage(pool: PgPool) {
    use DebitOutcome::{Differs, Done, NotConfirmed, Refused, Returned};
    let bank = Bank::new(pool);
    let refused = || Refused { reason: "frozen_account".into() };
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
        (Stage::DebitRefused,             refused(),     "confirmed",    "open",     held),
        (Stage::Recalled,           Returned,     "confirmed",    "open",     held),
        (Stage::RecallRefused,      refused(),     "confirmed",    "open",     held),
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

/// Path C (S0.10): the refusal is recorded under the debit's key before the recall, and is final also after the freeze is
/// lifted. Otherwise a paused first attempt would debit a recalled payment.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_10_a_debit_refused_for_a_frozen_account_stays_refused(pool: PgPool) {
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

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_account_freeze_after_the_debit_changes_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Settled, "k").await;
    bank.freeze(&p).await;
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_debit_of_a_closed_account_is_refused_with_its_own_reason(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Confirmed, "k").await;
    bank.sql(&format!("UPDATE accounts SET status = 'closed' WHERE account_id = '{}'", p.account)).await;
    assert_eq!(bank.debit(&p).await, DebitOutcome::Refused { reason: "closed_account".into() });
    bank.audit().await;
}

/// The payment still accepts a matching SUCCESS after one with another amount.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_is_debited_on_a_matching_success_after_a_differing_one(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Differing, "k").await;
    assert_eq!(bank.debit(&p).await, DebitOutcome::Differs);
    bank.ledger.store_callback(&success(&p, "at-last")).await.unwrap();
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    assert_eq!(bank.exceptions(&p).await, ["confirmation_mismatch"]);
    bank.audit().await;
}

/// A payment whose transfer settled while cancelling is debited, whatever the cause was.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_whose_transfer_settles_while_cancelling_is_debited(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Cancelling, "k").await;
    bank.ledger.store_callback(&success(&p, "late")).await.unwrap();
    let begun =
        bank.ledger.begin_cancel(&p.id, &Cause::CustomerCancel, SubmitProgress::NotScheduled).await.unwrap();
    assert_eq!(begun.final_status, Some(payment_protocol::facts::FinalStatus::Settled));
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    bank.audit().await;
}

/// The entries of a settled payment: source to holding, holding to escrow.
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

/// A hold that was changed outside the service: the step fails and writes nothing, in every build.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_hold_that_differs_from_its_payment_is_not_debited(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Confirmed, "changed").await;
    let change = "SET session_replication_role = replica; UPDATE holds SET amount_minor = amount_minor + 1;
                  SET session_replication_role = DEFAULT";
    sqlx::raw_sql(change).execute(&bank.pool).await.unwrap();
    let error = bank.ledger.debit(&p.id).await.unwrap_err();
    assert!(error.to_string().contains("the hold differs from the payment; nothing was written"), "{error}");
    assert!(!error.is_final(), "expected Temporal to retry until the records are repaired");
    assert_eq!((bank.state(&p).await.as_str(), bank.hold(&p).await.as_str()), ("confirmed", "open"));
}

/// Only a refusal of the row itself (SQLSTATE classes 22 and 23) is final: the payment-worker then requests an operator. Any
/// other error is repeated. Either way nothing is written, and the debit succeeds once the database accepts the row.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r6_a_debit_that_the_database_refuses_is_final_and_writes_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    let table = [("23514", true), ("22003", true), ("40001", false), ("53100", false), ("57014", false)];
    for (sqlstate, is_final) in table {
        let p = bank.payment_at(Stage::Confirmed, sqlstate).await;
        bank.refuse_rows("journal", "NEW.kind = 'debit'", sqlstate).await;
        for _ in 0..2 {
            let error = bank.ledger.debit(&p.id).await.unwrap_err();
            assert_eq!(error.is_final(), is_final, "{sqlstate}: {error:?}");
        }
        assert_eq!((bank.state(&p).await.as_str(), bank.hold(&p).await.as_str()), ("confirmed", "open"));
        assert_eq!(bank.operation(&format!("{}:debit", p.tx)).await, [""; 0], "{sqlstate}");
        bank.audit().await;
        bank.allow_rows("journal").await;
        assert_eq!(bank.debit(&p).await, DebitOutcome::Done, "{sqlstate}");
        bank.audit().await;
    }
}
