//! Recall in the ledger: the first definite answer is kept under its key.

use crate::support::{Bank, FUNDS_MINOR, Stage};
use futures::future::join_all;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_protocol::cause::Cause;
use payment_protocol::facts::RecallRecord::{RecallUnsupported, Recalled, Refused};
use payment_protocol::rules::ReleaseRefusal;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_first_recorded_answer_to_a_recall_is_kept(pool: PgPool) {
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // first     later     recorded
        (Recalled,  Recalled, "done"),
        (Recalled,  Refused,  "done"),
        (Refused,   Refused,  "refused the payee keeps it"),
        (Refused,   Recalled, "refused the payee keeps it"),
        (Refused,   RecallUnsupported, "refused the payee keeps it"),
        (RecallUnsupported, RecallUnsupported, "unsupported the payee keeps it"),
        (RecallUnsupported, Refused, "unsupported the payee keeps it"),
        (RecallUnsupported, Recalled, "unsupported the payee keeps it"),
    ];
    for (n, (first, later, recorded)) in table.into_iter().enumerate() {
        let p = bank.payment_at(Stage::DebitRefused, &format!("row {n}")).await;
        assert_eq!(bank.ledger.begin_recall(&p.id).await.unwrap(), None);
        assert_eq!(bank.ledger.record_recall(&p.id, first, "the payee keeps it").await.unwrap(), first);
        assert_eq!(
            bank.ledger.record_recall(&p.id, later, "another reason").await.unwrap(),
            first,
            "row {n}"
        );
        assert_eq!(bank.ledger.begin_recall(&p.id).await.unwrap(), Some(first), "row {n}");
        assert_eq!(bank.operation(&format!("{}:recall", p.tx)).await, [recorded], "row {n}");
        assert_eq!(bank.state(&p).await, "confirmed", "recording changed the state");
    }
    bank.audit().await;
}

/// Path C: after a recall the hold is released; after a refusal it stays open for an operator.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn path_c_releases_the_hold_after_a_recall_and_not_after_its_refusal(pool: PgPool) {
    let bank = Bank::new(pool);
    let cause = Cause::DebitRefused { reason: "frozen_account".into() };

    let recalled = bank.payment_at(Stage::Recalled, "recalled").await;
    assert_eq!(
        bank.ledger.release(&recalled.id, &cause).await.unwrap(),
        ReleaseStepOutcome::Done(cause.clone())
    );
    assert_eq!(
        (bank.state(&recalled).await.as_str(), bank.available(&recalled).await),
        ("failed", FUNDS_MINOR)
    );
    assert_eq!(bank.column(&recalled, "final_status").await.as_deref(), Some("returned"));

    let refused = bank.payment_at(Stage::RecallRefused, "refused").await;
    let not_allowed = ReleaseStepOutcome::Refused(ReleaseRefusal::MayStillSettle);
    assert_eq!(bank.ledger.release(&refused.id, &cause).await.unwrap(), not_allowed);
    bank.audit().await;
}

/// Both answers are recorded concurrently: one is kept, and every call returns it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn of_concurrent_recall_answers_one_is_kept(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 8).await;
    for round in 0..10 {
        let p = bank.payment_at(Stage::DebitRefused, &format!("round {round}")).await;
        let answers = [Recalled, Refused, Recalled, Refused, Recalled, Refused, Recalled, Refused];
        let returned =
            join_all(answers.map(|answer| bank.ledger.record_recall(&p.id, answer, "reason"))).await;
        let kept = bank.ledger.begin_recall(&p.id).await.unwrap().unwrap();
        assert!(returned.into_iter().all(|answer| answer.unwrap() == kept));
    }
    bank.audit().await;
    bank.close().await;
}
