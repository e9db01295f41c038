//! A workflow that was started with a payment that is not the ledger's.

use payment_ledger::LedgerError;
use payment_protocol::Payment;
use payment_protocol::ids::{AccountId, TxId};
use payment_protocol::money::Money;
use payment_protocol::port::{FenceOutcome, ReserveOutcome};
use payment_protocol::profile::Strategy;
use sqlx::PgPool;

use crate::support::Stage;
use crate::support::{Bank, Sample, first_run};

/// Each part of a payment that moves money or decides how an answer of the switch is read.
fn forge(part: &str, payment: &Payment, other: &Payment) -> Payment {
    let mut forged = payment.clone();
    match part {
        "transaction id" => forged.tx_id = TxId::derive(&other.payment_id),
        "amount" => forged.money = Money::from_minor(1, payment.money.currency()).unwrap(),
        "source account" => forged.source_account = AccountId::new("DE-SOMEBODY").unwrap(),
        "profile" => forged.profile.strategy = Strategy::AtMostOnce,
        other => panic!("{other}"),
    }
    assert_ne!(&forged, payment, "{part}");
    forged
}

/// What the three first steps of a run do with a payment, in words.
async fn first_steps(bank: &Bank, payment: &Payment) -> (ReserveOutcome, FenceOutcome) {
    bank.ledger.reject(payment).await.unwrap();
    let reserved = bank.ledger.reserve(payment, &first_run()).await.unwrap();
    (reserved, bank.ledger.fence_reserve(payment).await.unwrap())
}

/// The payment's row and timeline, and how many exceptions it has.
async fn recorded(bank: &Bank, p: &Sample) -> (String, i64, i64, Vec<String>) {
    let entries = bank.number(&format!("SELECT count(*) FROM timeline WHERE payment_id = '{}'", p.id)).await;
    (
        bank.state(p).await,
        bank.available(p).await,
        entries,
        bank.operation(&format!("{}:reserve", p.id)).await,
    )
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_forged_workflow_input_opens_an_exception_and_changes_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    let other = bank.payment_at(Stage::Accepted, "another payment").await;
    let other = bank.payment(&other).await;
    for part in ["transaction id", "amount", "source account", "profile"] {
        for stage in [Stage::Accepted, Stage::Reserved, Stage::Sent, Stage::Cancelling, Stage::Settled] {
            let p = bank.payment_at(stage, &format!("{part} {stage:?}")).await;
            let before = recorded(&bank, &p).await;
            let forged = forge(part, &bank.payment(&p).await, &other);
            for _ in 0..2 {
                let expected = (ReserveOutcome::Differs, FenceOutcome::Differs);
                assert_eq!(first_steps(&bank, &forged).await, expected, "{part} {stage:?}");
            }
            assert_eq!(recorded(&bank, &p).await, before, "{part} {stage:?}");
            assert_eq!(bank.exceptions(&p).await, ["workflow_input_differs"], "{part} {stage:?}");
            let sql = format!("SELECT detail FROM exceptions WHERE payment_id = '{}'", p.id);
            let detail = format!("a workflow was started with a payment that differs in {part}");
            assert_eq!(bank.words(&sql).await, [detail], "{stage:?}");
        }
    }
    bank.audit().await;
}

/// The exception of a payment that is not stored has no payment; an operator can close it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_workflow_of_an_unknown_payment_opens_an_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    let known = bank.payment_at(Stage::Accepted, "known").await;
    let id = bank.order("never accepted").payment_id;
    let unknown = Payment { payment_id: id.clone(), tx_id: TxId::derive(&id), ..bank.payment(&known).await };
    assert_eq!(first_steps(&bank, &unknown).await, (ReserveOutcome::Differs, FenceOutcome::Differs));
    let opened = bank.words("SELECT concat_ws(' ', kind, payment_id, origin) FROM exceptions").await;
    assert_eq!(opened, [format!("workflow_input_differs {id}")]);
    let exception = bank.number("SELECT exception_id FROM exceptions").await;
    bank.ledger.close_exception(exception, "Ann", "the client was removed").await.unwrap();

    let error = bank.ledger.accepted_payment(&id).await.unwrap_err();
    assert!(matches!(error, LedgerError::UnknownPayment(_)), "{error:?}");
    assert_eq!(error.to_string(), format!("the ledger has no payment {id}; check the payment id"));
}

/// An older run may make its first step after the payment was resumed: the count is not part of the comparison.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_number_of_recoveries_is_not_compared(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Accepted, "resumed").await;
    let first = bank.payment(&p).await;
    bank.ledger.resume(&p.id, p.id.as_str()).await.unwrap().unwrap();
    assert_eq!((first.resume, bank.payment(&p).await.resume), (0, 1));
    assert_eq!(bank.ledger.reserve(&first, &first_run()).await.unwrap(), ReserveOutcome::Held);
}
