//! `switch::callbacks`: callbacks are stored once; a callback that is recorded concurrently with an end is not lost.

use crate::support::{Bank, Stage, event, failure, success};
use futures::future::{join, join_all};
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::Cause;
use payment_protocol::inbox::{CallbackStatus, InboxMessageKind};
use payment_protocol::port::DebitOutcome;
use payment_protocol::rules::FinalStatusRuling;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_callback_is_stored_completely_and_delivered_to_the_workflow(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    let callback = Callback { body: vec![0xff, 0x00, b'{'], ..failure(&p, "evt-1") };
    let StoreCallbackOutcome::New(Some(message)) = bank.ledger.store_callback(&callback).await.unwrap()
    else {
        panic!("expected a message");
    };
    assert_eq!(
        (&message.payment_id, message.workflow_id.as_str(), message.ended),
        (&p.id, p.id.as_str(), false)
    );
    let kind = InboxMessageKind::Callback {
        status: CallbackStatus::Failure,
        reason: Some("account closed".into()),
        event_id: "evt-1".into(),
    };
    assert_eq!(message.kind, kind);
    let stored = "SELECT concat_ws(' ', switch, event_id, payment_id, reference, status, amount_minor, currency, reason,
                                   encode(body, 'hex')) FROM switch_callbacks";
    let expected =
        format!("northern evt-1 {} {} FAILURE 1000 EUR account closed ff007b", p.id, callback.reference);
    assert_eq!(bank.words(stored).await, [expected]);
}

/// R21b: an event id with another body is an exception, whichever payment the body names, and the first body is kept.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r21b_a_callback_event_id_with_another_body_is_an_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    let other = bank.payment_at(Stage::Sent, "other").await;
    bank.ledger.store_callback(&failure(&p, "evt-1")).await.unwrap();

    let reused = bank.ledger.store_callback(&success(&p, "evt-1")).await.unwrap();
    assert_eq!(reused, StoreCallbackOutcome::CallbackEventIdReused);
    assert_eq!(bank.exceptions(&p).await, ["callback_event_id_reused"]);
    assert_eq!(
        bank.column(&p, "final_status").await,
        None,
        "a callback with a reused id changed the final status"
    );

    // A SUCCESS for another payment under the same id is refused, too.
    assert_eq!(
        bank.ledger.store_callback(&success(&other, "evt-1")).await.unwrap(),
        StoreCallbackOutcome::CallbackEventIdReused
    );
    assert_eq!(bank.column(&other, "final_status").await, None);
    assert_eq!(bank.number("SELECT count(*) FROM switch_callbacks").await, 1);
    bank.audit().await;
}

/// R21b: an authentic callback for an unknown payment is stored, and an exception; no workflow is notified, no money moves.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r21b_a_callback_for_an_unknown_payment_is_an_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    let references =
        ["tx_unknown:submit", "", "nonsense", p.tx.as_str(), p.id.as_str(), &format!("{}:debit", p.tx)];
    for (n, reference) in references.into_iter().enumerate() {
        let callback = Callback { reference: reference.to_owned(), ..success(&p, &format!("evt-{n}")) };
        assert_eq!(
            bank.ledger.store_callback(&callback).await.unwrap(),
            StoreCallbackOutcome::New(None),
            "{reference:?}"
        );
        assert_eq!(
            bank.ledger.store_callback(&callback).await.unwrap(),
            StoreCallbackOutcome::Duplicate,
            "{reference:?}"
        );
    }
    let kinds = bank.words("SELECT kind FROM exceptions WHERE payment_id IS NULL").await;
    assert_eq!(kinds, ["callback_for_unknown_payment"; 6]);
    assert_eq!(bank.number("SELECT count(*) FROM inbox").await, 0);
    assert_eq!(bank.column(&p, "final_status").await, None);
    bank.audit().await;
}

/// R23: JSON strings may contain NUL, text columns may not.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r23_a_callback_with_nul_characters_is_stored(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    let callback = Callback { reason: Some("closed\0".into()), ..failure(&p, "evt-1") };
    assert!(matches!(
        bank.ledger.store_callback(&callback).await.unwrap(),
        StoreCallbackOutcome::New(Some(_))
    ));
    let callback = Callback { reference: "\0".into(), currency: "\0".into(), ..success(&p, "evt-2") };
    assert_eq!(bank.ledger.store_callback(&callback).await.unwrap(), StoreCallbackOutcome::New(None));
    bank.audit().await;
}

/// R17: 100 concurrent copies of a callback: one row, one message, one final status.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r17_concurrent_copies_of_a_callback_are_stored_once(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 32).await;
    for round in 0..5 {
        let p = bank.payment_at(Stage::Sent, &format!("round {round}")).await;
        let callback = success(&p, &event(&p, "s"));
        let stored = join_all((0..100).map(|_| bank.ledger.store_callback(&callback))).await;
        let new = stored
            .iter()
            .filter(|s| matches!(s.as_ref().unwrap(), StoreCallbackOutcome::New(Some(_))))
            .count();
        let duplicates =
            stored.iter().filter(|s| matches!(s.as_ref().unwrap(), StoreCallbackOutcome::Duplicate)).count();
        assert_eq!((new, duplicates), (1, 99));
        let messages = format!("SELECT count(*) FROM inbox WHERE payment_id = '{}'", p.id);
        assert_eq!(bank.number(&messages).await, 1);
        assert_eq!(bank.exceptions(&p).await, [""; 0]);
    }
    bank.audit().await;
    bank.close().await;
}

/// Without a payment row there is no row lock to serialize the copies.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_copies_of_an_unmatched_callback_are_one_exception(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 16).await;
    let p = bank.payment_at(Stage::Sent, "k").await;
    let callback = Callback { reference: "tx_unknown:submit".into(), ..success(&p, "evt-1") };
    let stored = join_all((0..16).map(|_| bank.ledger.store_callback(&callback))).await;
    let new =
        stored.iter().filter(|s| matches!(s.as_ref().unwrap(), StoreCallbackOutcome::New(None))).count();
    assert_eq!(new, 1);
    assert_eq!(bank.number("SELECT count(*) FROM exceptions").await, 1);
    bank.close().await;
}

/// R19: a void and a SUCCESS are recorded concurrently. The second one compares with the first: the SUCCESS is the final status
/// or an exception.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r19_a_success_concurrent_with_a_void_is_final_or_an_exception(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 4).await;
    for round in 0..40 {
        let p = bank.payment_at(Stage::Cancelling, &format!("round {round}")).await;
        let callback = success(&p, &event(&p, "s"));
        let (stored, void) = if round % 2 == 0 {
            join(bank.ledger.store_callback(&callback), bank.ledger.record_void(&p.id, VoidReason::Cancelled))
                .await
        } else {
            let (void, stored) = join(
                bank.ledger.record_void(&p.id, VoidReason::Cancelled),
                bank.ledger.store_callback(&callback),
            )
            .await;
            (stored, void)
        };
        let final_status = bank.column(&p, "final_status").await.unwrap();
        let StoreCallbackOutcome::New(message) = stored.unwrap() else { panic!("expected a new callback") };
        match void.unwrap() {
            FinalStatusRuling::First => {
                assert_eq!((final_status.as_str(), message), ("void", None));
                let released = bank.ledger.release(&p.id, &Cause::SlaExpired).await.unwrap();
                assert_eq!(released, ReleaseStepOutcome::Done(Cause::SlaExpired));
            }
            FinalStatusRuling::Contradicts => {
                assert_eq!((final_status.as_str(), message.is_some()), ("settled", true));
                assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(bank.exceptions(&p).await, ["contradictory_final_status"]);
    }
    bank.audit().await;
    bank.close().await;
}

/// R19: a release and a SUCCESS are recorded concurrently: the hold is released, and the kind of the exception shows which was
/// recorded first.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r19_a_success_concurrent_with_a_release_is_an_exception(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 4).await;
    for round in 0..40 {
        let p = bank.payment_at(Stage::Void, &format!("round {round}")).await;
        let callback = success(&p, &event(&p, "s"));
        let (stored, released) =
            join(bank.ledger.store_callback(&callback), bank.ledger.release(&p.id, &Cause::SlaExpired)).await;
        assert_eq!(stored.unwrap(), StoreCallbackOutcome::New(None));
        assert_eq!(released.unwrap(), ReleaseStepOutcome::Done(Cause::SlaExpired));
        let exceptions = bank.exceptions(&p).await;
        assert!(
            exceptions == ["contradictory_final_status"] || exceptions == ["late_confirmation"],
            "{exceptions:?}"
        );
    }
    bank.audit().await;
    bank.close().await;
}

/// R19: a release without an attempt is concurrent with the first attempt: one of them succeeds.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r19_of_a_concurrent_release_and_submit_attempt_one_succeeds(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 4).await;
    for round in 0..40 {
        let p = bank.payment_at(Stage::Reserved, &format!("round {round}")).await;
        let cause = Cause::Interrupted;
        let (ruling, released) = join(bank.attempt(&p), bank.ledger.release(&p.id, &cause)).await;
        let is_sent = matches!(ruling, payment_protocol::rules::AttemptRuling::Send(1));
        assert_eq!(
            is_sent,
            matches!(released.unwrap(), ReleaseStepOutcome::Refused(_)),
            "expected exactly one of both"
        );
    }
    bank.audit().await;
    bank.close().await;
}

#[test]
fn callback_statuses_are_success_and_failure_on_the_wire() {
    assert_eq!((CallbackStatus::Success.as_str(), CallbackStatus::Failure.as_str()), ("SUCCESS", "FAILURE"));
}
