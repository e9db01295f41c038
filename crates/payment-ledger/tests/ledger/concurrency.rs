//! Concurrent steps: each has one effect, and no update is lost.

use crate::support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Stage};
use futures::StreamExt as _;
use futures::future::{join, join_all};
use payment_ledger::steps::accept::NewPayment;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::port::{DebitOutcome, ReserveOutcome, SubmitProgress};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// Concurrent copies of each step.
const COPIES: usize = 16;
/// Payments of the test; 1,000 with `./dev test --long`. Half of them settle.
fn payments() -> usize {
    if std::env::var_os("TEST_LONG").is_some() { 1_000 } else { 50 }
}

/// R3: 16 concurrent copies of each step, for each payment.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r3_sixteen_concurrent_copies_of_a_ledger_step_have_one_effect(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 32).await;
    let (all, half) = (payments(), payments() / 2);
    futures::stream::iter(0..all)
        .for_each_concurrent(2, async |n| {
            let p = bank.payment_at(Stage::Accepted, &format!("k{n}")).await;
            let reserved = join_all((0..COPIES).map(|_| bank.reserve(&p))).await;
            assert!(reserved.iter().all(|outcome| *outcome == ReserveOutcome::Held));
            bank.attempt(&p).await;
            if n % 2 == 0 {
                bank.ledger
                    .store_callback(&crate::support::success(&p, &crate::support::event(&p, "s")))
                    .await
                    .unwrap();
                let debited = join_all((0..COPIES).map(|_| bank.debit(&p))).await;
                assert!(debited.iter().all(|outcome| *outcome == DebitOutcome::Done));
            } else {
                bank.ledger
                    .begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::NotScheduled)
                    .await
                    .unwrap();
                bank.ledger
                    .record_void(&p.id, payment_protocol::cancel::VoidReason::Cancelled)
                    .await
                    .unwrap();
                let released =
                    join_all((0..COPIES).map(|_| bank.ledger.release(&p.id, &Cause::SlaExpired))).await;
                assert!(
                    released
                        .into_iter()
                        .all(|outcome| outcome.unwrap() == ReleaseStepOutcome::Done(Cause::SlaExpired))
                );
            }
        })
        .await;
    let entries = "SELECT kind || ' ' || count(*) FROM journal GROUP BY kind ORDER BY kind";
    let expected = [("debit", half), ("fund", all), ("release", half), ("reserve", all)];
    assert_eq!(bank.words(entries).await, expected.map(|(kind, count)| format!("{kind} {count}")));
    let ends = "SELECT state || ' ' || count(*) FROM payments GROUP BY state ORDER BY state";
    assert_eq!(bank.words(ends).await, ["settled", "timed_out"].map(|end| format!("{end} {half}")));
    bank.audit().await;
    bank.close().await;
}

/// R3: concurrent debits and releases of one payment: the final status and the recall allow at most one of them.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r3_of_a_concurrent_debit_and_release_one_succeeds(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 16).await;
    for (n, stage) in
        [Stage::Confirmed, Stage::Void, Stage::Recalled, Stage::Sent].into_iter().cycle().take(24).enumerate()
    {
        let p = bank.payment_at(stage, &format!("k{n}")).await;
        let cause = Cause::SlaExpired;
        let pairs = (0..8).map(|_| join(bank.debit(&p), bank.ledger.release(&p.id, &cause)));
        for (debited, released) in join_all(pairs).await {
            let done =
                (debited == DebitOutcome::Done, matches!(released.unwrap(), ReleaseStepOutcome::Done(_)));
            let expected = (stage == Stage::Confirmed, matches!(stage, Stage::Void | Stage::Recalled));
            assert_eq!(done, expected, "{stage:?}");
        }
    }
    bank.audit().await;
    bank.close().await;
}

/// R34: 64 concurrent payments from two accounts, settled and released, lose no update. A step locks the account that pays, and not the
/// one that is paid, which is at another bank.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r34_64_payments_from_two_accounts_lose_no_update(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 32).await;
    let (a, b) = (bank.open("a", 64 * AMOUNT_MINOR).await, bank.open("b", 64 * AMOUNT_MINOR).await);
    let writers = (0..64).map(|n: i64| {
        let (bank, source, destination) = if n % 2 == 0 { (&bank, &a, &b) } else { (&bank, &b, &a) };
        let order = NewPayment {
            source_account: source.clone(),
            destination_account: destination.clone(),
            ..bank.order(&format!("k{n}"))
        };
        async move {
            let p = bank.accept(&order).await;
            let stage = if n % 4 < 2 { Stage::Settled } else { Stage::Released };
            bank.advance(&p, stage).await;
        }
    });
    join_all(writers).await;
    let balances =
        "SELECT account_id || ' ' || available_minor FROM accounts WHERE kind = 'customer' ORDER BY 1";
    let left = (64 - 16) * AMOUNT_MINOR;
    assert_eq!(bank.words(balances).await, [format!("a {left}"), format!("b {left}")]);
    bank.audit().await;
    bank.close().await;
}

/// As many concurrent reserves succeed as the balance allows.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_reserves_never_overdraw_a_balance(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 16).await;
    let account = bank.open("purse", FUNDS_MINOR).await;
    let orders: Vec<_> = (0..32)
        .map(|n| NewPayment { source_account: account.clone(), ..bank.order(&format!("k{n}")) })
        .collect();
    let reserves = orders.iter().map(|order| async { bank.reserve(&bank.accept(order).await).await });
    let outcomes = join_all(reserves).await;
    let count = |expected: ReserveOutcome| outcomes.iter().filter(|outcome| **outcome == expected).count();
    assert_eq!(count(ReserveOutcome::Held), 10);
    assert_eq!(count(ReserveOutcome::Refused(ReserveRefusal::InsufficientFunds)), 22);
    bank.audit().await;
    bank.close().await;
}

/// A freeze concurrent with a debit: the debit succeeds before it, or its refusal is final.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_debit_concurrent_with_a_freeze_succeeds_or_is_refused_for_good(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 4).await;
    for round in 0..30 {
        let p = bank.payment_at(Stage::Confirmed, &format!("round {round}")).await;
        let (outcome, ()) = join(bank.debit(&p), bank.freeze(&p)).await;
        let hold = bank.hold(&p).await;
        match &outcome {
            DebitOutcome::Done => assert_eq!(hold, "debited"),
            DebitOutcome::Refused { .. } => assert_eq!(hold, "open"),
            other => panic!("{other:?}"),
        }
        assert_eq!(bank.debit(&p).await, outcome, "a repeat changed the outcome");
    }
    bank.audit().await;
    bank.close().await;
}
