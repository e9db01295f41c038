//! What a person must see: payments that stand, with their reason, and alerts, once each.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use payment_protocol::cause::OperatorReason;
use payment_protocol::world::Settled;
use sqlx::PgPool;
use support::{Bank, Stage, event, success};

/// A payment stands until a matching answer moves it; after its end it stands no more.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_stands_with_its_reason_until_it_moves(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Differing, "k").await;
    for _ in 0..2 {
        bank.ledger.needs_operator(&p.id, OperatorReason::ReportDiffers).await.unwrap();
        assert_eq!(bank.state(&p).await, "needs_operator");
    }
    assert_eq!(
        bank.words("SELECT kind || ' ' || detail FROM alerts").await,
        ["needs_operator report_differs"]
    );

    bank.ledger.store_callback(&success(&p, &event(&p, "s"))).await.unwrap();
    assert_eq!(bank.state(&p).await, "confirmed");
    assert_eq!(bank.settle(&p).await, Settled::Done);
    bank.ledger.needs_operator(&p.id, OperatorReason::CannotAsk).await.unwrap();
    assert_eq!(bank.state(&p).await, "settled", "an end is an end");
    bank.audit().await;
}
