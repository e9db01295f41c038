//! What a person must see: payments that stand, with their reason, and alerts, once each.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::facts::FinalStatus;
use payment_protocol::inbox::InboxMessageKind;
use payment_protocol::port::{DebitOutcome, NeedsOperatorOutcome};
use sqlx::PgPool;
use support::{Bank, Stage, event, success};

/// A payment stands until a matching answer moves it; after its end it stands no more.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn needs_operator_keeps_its_reason_until_the_payment_moves(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Differing, "k").await;
    for _ in 0..2 {
        bank.ledger.needs_operator(&p.id, OperatorReason::ConfirmationMismatch).await.unwrap();
        assert_eq!(bank.state(&p).await, "needs_operator");
    }
    assert_eq!(
        bank.words("SELECT kind || ' ' || detail FROM alerts").await,
        ["needs_operator confirmation_mismatch"]
    );

    bank.ledger.store_callback(&success(&p, &event(&p, "s"))).await.unwrap();
    assert_eq!(bank.state(&p).await, "confirmed");
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    bank.ledger.needs_operator(&p.id, OperatorReason::NoCancelOrQuery).await.unwrap();
    assert_eq!(bank.state(&p).await, "settled", "an end is an end");
    bank.audit().await;
}

/// A final_status on record is told to whoever comes to stand; one that is written while the payment stands
/// wakes its workflow through the inbox. Otherwise the money would be held for ever though the switch
/// has decided.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_late_final_status_is_delivered_while_needing_an_operator(pool: PgPool) {
    let bank = Bank::new(pool);
    let late = bank.payment_at(Stage::Cancelling, "late").await;
    let stands = bank.ledger.needs_operator(&late.id, OperatorReason::SwitchRetentionExpired).await.unwrap();
    assert_eq!(stands, NeedsOperatorOutcome::AwaitsOperator);
    assert_eq!(bank.ledger.claim_undelivered(10, 300_000).await.unwrap(), []);
    bank.ledger.record_void(&late.id, VoidReason::Cancelled).await.unwrap();
    let messages = bank.ledger.claim_undelivered(10, 300_000).await.unwrap();
    assert_eq!(
        messages.iter().map(|message| &message.kind).collect::<Vec<_>>(),
        [&InboxMessageKind::FinalStatusRecorded]
    );
    let told = bank.ledger.needs_operator(&late.id, OperatorReason::SwitchRetentionExpired).await.unwrap();
    assert_eq!(told, NeedsOperatorOutcome::FinalStatus(FinalStatus::Void));

    // An asking that was given up and comes late does not take it out of the queue.
    let paused = bank.payment_at(Stage::Cancelling, "paused").await;
    bank.ledger.needs_operator(&paused.id, OperatorReason::SwitchRetentionExpired).await.unwrap();
    bank.ledger.begin_cancel(&paused.id, &Cause::SlaExpired).await.unwrap();
    assert_eq!(bank.state(&paused).await, "needs_operator");
    bank.ledger.record_void(&paused.id, VoidReason::Cancelled).await.unwrap();
    let messages = bank.ledger.claim_undelivered(10, 300_000).await.unwrap();
    assert_eq!(messages.iter().map(|message| &message.payment_id).collect::<Vec<_>>(), [&paused.id]);
}

/// An end that a late attempt writes is told to whoever stands before a person, once: the workflow would stand for ever.
/// Where nobody ever stood the run that wrote the end needs no telling.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r6_an_end_is_delivered_to_a_payment_that_needs_an_operator(pool: PgPool) {
    use OperatorReason::{CompensationFailed, ConfirmationMismatch, WorkflowStartRefused};
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // stage           stands for             its end
        (Stage::Void,      Some(CompensationFailed),      "timed_out"),
        (Stage::Void,      None,                  "timed_out"),
        (Stage::Confirmed, Some(ConfirmationMismatch),   "settled"),
        (Stage::Confirmed, None,                  "settled"),
        (Stage::Accepted,  Some(WorkflowStartRefused),    "rejected"),
        (Stage::Accepted,  None,                  "rejected"),
    ];
    for (stage, stands, end) in table {
        let case = format!("{stage:?}-{}", stands.map_or("never-stood", OperatorReason::as_str));
        let p = bank.payment_at(stage, &case).await;
        if let Some(reason) = stands {
            bank.stand(&p, reason).await;
        }
        for _ in 0..2 {
            match stage {
                Stage::Void => drop(bank.ledger.release(&p.id, &Cause::SlaExpired).await.unwrap()),
                Stage::Confirmed => assert_eq!(bank.debit(&p).await, DebitOutcome::Done, "{case}"),
                _ => bank.ledger.refuse_unreserved(&p.id, ReserveRefusal::Invalid).await.unwrap(),
            }
        }
        assert_eq!(bank.state(&p).await, end, "{case}");
        let mut told = bank.ledger.claim_undelivered(100, 300_000).await.unwrap();
        told.retain(|message| message.kind == InboxMessageKind::FinalStatusRecorded);
        let told: Vec<_> = told.into_iter().map(|message| (message.payment_id, message.ended)).collect();
        let due: Vec<_> = stands.iter().map(|_| (p.id.clone(), true)).collect();
        assert_eq!(told, due, "{case}");
    }
    bank.audit().await;
}
