//! `operator::alerts`: payments that need an operator, with their reason, and one alert each.

use crate::support::{Bank, Stage, event, success};
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::facts::FinalStatus;
use payment_protocol::inbox::InboxMessageKind;
use payment_protocol::port::{DebitOutcome, NeedsOperatorOutcome, SubmitProgress};
use sqlx::PgPool;

/// A payment needs an operator until a matching answer moves it, and never after its end.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_keeps_its_reason_to_need_an_operator_until_it_moves(pool: PgPool) {
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
    assert_eq!(bank.state(&p).await, "settled", "the final state changed");
    bank.audit().await;
}

/// A recorded final status is returned instead of needing an operator; one that is recorded later is delivered to the workflow
/// through the inbox. Otherwise the hold would stay open although the switch has decided.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_late_final_status_is_delivered_to_a_payment_that_needs_an_operator(pool: PgPool) {
    let bank = Bank::new(pool);
    let late = bank.payment_at(Stage::Cancelling, "late").await;
    let outcome = bank.ledger.needs_operator(&late.id, OperatorReason::SwitchRetentionExpired).await.unwrap();
    assert_eq!(outcome, NeedsOperatorOutcome::AwaitsOperator);
    assert_eq!(bank.ledger.claim_undelivered(10, 300_000).await.unwrap(), []);
    bank.ledger.record_void(&late.id, VoidReason::Cancelled).await.unwrap();
    let messages = bank.ledger.claim_undelivered(10, 300_000).await.unwrap();
    assert_eq!(
        messages.iter().map(|message| &message.kind).collect::<Vec<_>>(),
        [&InboxMessageKind::FinalStatusRecorded]
    );
    let outcome = bank.ledger.needs_operator(&late.id, OperatorReason::SwitchRetentionExpired).await.unwrap();
    assert_eq!(outcome, NeedsOperatorOutcome::FinalStatus(FinalStatus::Void));

    // A late cancel attempt does not change the state.
    let paused = bank.payment_at(Stage::Cancelling, "paused").await;
    bank.ledger.needs_operator(&paused.id, OperatorReason::SwitchRetentionExpired).await.unwrap();
    bank.ledger.begin_cancel(&paused.id, &Cause::SlaExpired, SubmitProgress::NotScheduled).await.unwrap();
    assert_eq!(bank.state(&paused).await, "needs_operator");
    bank.ledger.record_void(&paused.id, VoidReason::Cancelled).await.unwrap();
    let messages = bank.ledger.claim_undelivered(10, 300_000).await.unwrap();
    assert_eq!(messages.iter().map(|message| &message.payment_id).collect::<Vec<_>>(), [&paused.id]);
}

/// A final state recorded by a late attempt is delivered once to a workflow that needs an operator, which would wait for ever
/// otherwise. Without a need for an operator the run itself recorded the end, and nothing is delivered.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r6_a_late_final_state_is_delivered_if_the_payment_needs_an_operator(pool: PgPool) {
    use OperatorReason::{CompensationFailed, ConfirmationMismatch, WorkflowStartRefused};
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // stage           operator reason          final state
        (Stage::Void,      Some(CompensationFailed),      "timed_out"),
        (Stage::Void,      None,                  "timed_out"),
        (Stage::Confirmed, Some(ConfirmationMismatch),   "settled"),
        (Stage::Confirmed, None,                  "settled"),
        (Stage::Accepted,  Some(WorkflowStartRefused),    "rejected"),
        (Stage::Accepted,  None,                  "rejected"),
    ];
    for (stage, reason, end) in table {
        let case = format!("{stage:?}-{}", reason.map_or("no-operator", OperatorReason::as_str));
        let p = bank.payment_at(stage, &case).await;
        if let Some(reason) = reason {
            bank.needs_operator(&p, reason).await;
        }
        for _ in 0..2 {
            match stage {
                Stage::Void => drop(bank.ledger.release(&p.id, &Cause::SlaExpired).await.unwrap()),
                Stage::Confirmed => assert_eq!(bank.debit(&p).await, DebitOutcome::Done, "{case}"),
                _ => bank.ledger.reject(&bank.payment(&p).await).await.unwrap(),
            }
        }
        assert_eq!(bank.state(&p).await, end, "{case}");
        let mut messages = bank.ledger.claim_undelivered(100, 300_000).await.unwrap();
        messages.retain(|message| message.kind == InboxMessageKind::FinalStatusRecorded);
        let delivered: Vec<_> =
            messages.into_iter().map(|message| (message.payment_id, message.ended)).collect();
        let expected: Vec<_> = reason.iter().map(|_| (p.id.clone(), true)).collect();
        assert_eq!(delivered, expected, "{case}");
    }
    bank.audit().await;
}
