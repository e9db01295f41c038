//! `switch::inbox`: customer cancels are stored once; messages are claimed until they are delivered.

use std::collections::BTreeSet;

use crate::support::{Bank, Stage, failure, success};
use futures::future::join_all;
use payment_ledger::switch::inbox::CancelRequestOutcome;
use payment_protocol::inbox::{CallbackStatus, InboxMessage, InboxMessageKind};
use payment_protocol::state::FinalState;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// Backoff of a delivery, longer than any test takes.
const BACKOFF_MS: i64 = 60_000;

/// Makes every inbox message due now.
async fn due(bank: &Bank) {
    bank.sql("UPDATE inbox SET next_delivery_at = now() - interval '1 ms'").await;
}

fn ids(messages: &[InboxMessage]) -> Vec<i64> {
    messages.iter().map(|message| message.inbox_id).collect()
}

/// The process that stored a callback has a second to deliver it; then the background worker claims it with growing backoff
/// until it is marked.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn undelivered_inbox_messages_are_claimed_with_growing_backoff(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    let clock = async || bank.words("SELECT clock_timestamp()::text").await.remove(0);
    let before = clock().await;
    bank.ledger.store_callback(&failure(&p, "evt-1")).await.unwrap();
    let after = clock().await;
    let in_a_second = format!(
        "SELECT count(*) FROM inbox WHERE next_delivery_at - interval '1 second' BETWEEN '{before}' AND '{after}'"
    );
    assert_eq!(
        bank.number(&in_a_second).await,
        1,
        "expected the message to be due a second after it was stored"
    );
    // Set explicitly, since the second may have passed already.
    bank.sql("UPDATE inbox SET next_delivery_at = now() + interval '1 hour'").await;
    assert_eq!(
        bank.ledger.claim_undelivered(10, BACKOFF_MS).await.unwrap(),
        [],
        "a message was claimed before it was due"
    );

    let mut backoffs_s = vec![];
    for _ in 0..5 {
        due(&bank).await;
        let claimed = bank.ledger.claim_undelivered(10, BACKOFF_MS).await.unwrap();
        assert_eq!(claimed.len(), 1);
        assert_eq!(
            bank.ledger.claim_undelivered(10, BACKOFF_MS).await.unwrap(),
            [],
            "a claimed message was claimed again"
        );
        backoffs_s.push(
            bank.number(
                "SELECT round(extract(epoch FROM next_delivery_at - now()) / 10)::bigint * 10 FROM inbox",
            )
            .await,
        );
    }
    assert_eq!(backoffs_s, [60, 120, 240, 300, 300], "expected doubling up to five minutes");

    due(&bank).await;
    let claimed = bank.ledger.claim_undelivered(10, BACKOFF_MS).await.unwrap();
    bank.ledger.mark_delivered(claimed[0].inbox_id).await.unwrap();
    due(&bank).await;
    assert_eq!(
        bank.ledger.claim_undelivered(10, BACKOFF_MS).await.unwrap(),
        [],
        "a delivered message was claimed"
    );
}

/// A claimed message has its kind, the current workflow, and whether the payment has ended.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn claimed_inbox_messages_name_the_current_workflow(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    bank.customer_cancel(&p).await;
    bank.ledger.store_callback(&success(&p, "evt-1")).await.unwrap();
    bank.ledger.resume(&p.id, p.id.as_str()).await.unwrap().unwrap();
    bank.debit(&p).await;
    due(&bank).await;
    let claimed = bank.ledger.claim_undelivered(10, BACKOFF_MS).await.unwrap();
    let kinds: Vec<_> = claimed.iter().map(|message| message.kind.clone()).collect();
    let callback = InboxMessageKind::Callback {
        status: CallbackStatus::Success,
        reason: None,
        event_id: "evt-1".into(),
    };
    assert_eq!(kinds, [InboxMessageKind::Cancel, callback]);
    for message in &claimed {
        assert_eq!(message.workflow_id, format!("{}:resume:1", p.id));
        assert!(message.ended);
    }
}

/// Concurrent claims share the messages: each is claimed once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_claims_take_each_inbox_message_once(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 8).await;
    let p = bank.payment_at(Stage::Sent, "k").await;
    for n in 0..40 {
        bank.ledger.store_callback(&failure(&p, &format!("evt-{n}"))).await.unwrap();
    }
    due(&bank).await;
    let mut all: Vec<i64> = vec![];
    // More rounds than necessary, since a claim skips rows that another one has locked.
    for _ in 0..8 {
        let claimed = join_all((0..8).map(|_| bank.ledger.claim_undelivered(5, BACKOFF_MS))).await;
        all.extend(claimed.iter().flat_map(|messages| ids(messages.as_ref().unwrap())));
    }
    assert_eq!(all.len(), 40);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 40);
    bank.close().await;
}

/// A claim does not wait for a row that another one has locked.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_claim_of_inbox_messages_skips_a_locked_one(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    for n in 0..2 {
        bank.ledger.store_callback(&failure(&p, &format!("evt-{n}"))).await.unwrap();
    }
    due(&bank).await;
    let mut other = bank.pool.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM inbox WHERE event_id = 'evt-0' FOR UPDATE")
        .execute(&mut *other)
        .await
        .unwrap();
    assert_eq!(bank.ledger.claim_undelivered(10, BACKOFF_MS).await.unwrap().len(), 1);
    other.rollback().await.unwrap();
    assert_eq!(bank.ledger.claim_undelivered(10, BACKOFF_MS).await.unwrap().len(), 1);
}

/// A repeated cancel is stored once; a cancel after the end is refused.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_customers_cancel_is_stored_once_and_refused_after_the_payments_end(pool: PgPool) {
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        (Stage::Accepted,   None),
        (Stage::Reserved,   None),
        (Stage::Sent,       None),
        (Stage::Cancelling, None),
        (Stage::Confirmed,  None),
        (Stage::Void,       None),
        (Stage::Settled,    Some(FinalState::Settled)),
        (Stage::Released,   Some(FinalState::TimedOut)),
        (Stage::Rejected,   Some(FinalState::Rejected)),
    ];
    for (stage, end) in table {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        let messages =
            format!("SELECT count(*) FROM inbox WHERE kind = 'cancel' AND payment_id = '{}'", p.id);
        match end {
            None => {
                let CancelRequestOutcome::Requested(Some(message)) = bank.customer_cancel(&p).await else {
                    panic!("{stage:?}: expected a message");
                };
                assert_eq!((&message.payment_id, message.kind), (&p.id, InboxMessageKind::Cancel));
                assert_eq!(
                    bank.customer_cancel(&p).await,
                    CancelRequestOutcome::Requested(None),
                    "{stage:?}"
                );
                assert_eq!(bank.number(&messages).await, 1, "{stage:?}");
            }
            Some(end) => {
                assert_eq!(bank.customer_cancel(&p).await, CancelRequestOutcome::Ended(end), "{stage:?}");
                assert_eq!(bank.number(&messages).await, 0, "{stage:?}");
            }
        }
    }
    bank.audit().await;
}

/// A message that this version cannot read waits for one that can, and holds up no other.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_unreadable_inbox_message_holds_up_no_other(pool: PgPool) {
    let bank = Bank::new(pool);
    let (unreadable, readable) =
        (bank.payment_at(Stage::Sent, "unreadable").await, bank.payment_at(Stage::Sent, "readable").await);
    for (p, event) in [(&unreadable, "evt-1"), (&readable, "evt-2")] {
        bank.ledger.store_callback(&failure(p, event)).await.unwrap();
    }
    bank.damage(
        "ALTER TABLE switch_callbacks DROP CONSTRAINT switch_callbacks_status_known;
         UPDATE switch_callbacks SET status = 'A_LATER_STATUS' WHERE event_id = 'evt-1'"
            .into(),
    )
    .await;
    due(&bank).await;
    let claimed = bank.ledger.claim_undelivered(10, BACKOFF_MS).await.unwrap();
    assert_eq!(claimed.iter().map(|message| &message.payment_id).collect::<Vec<_>>(), [&readable.id]);
    bank.ledger.mark_all_delivered(&ids(&claimed)).await.unwrap();
    due(&bank).await;
    assert_eq!(bank.ledger.claim_undelivered(10, BACKOFF_MS).await.unwrap(), []);
}
