//! Many at once: every step is one effect, and no update is lost.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use futures::StreamExt as _;
use futures::future::{join, join_all};
use payment_ledger::steps::accept::NewPayment;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::port::{DebitOutcome, ReserveOutcome};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Stage};

/// How often each step runs at once, and for how many payments.
const TWINS: usize = 16;
const PAYMENTS: usize = 50;

/// R3: 16 at once of each step of 50 payments: one effect each.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r3_sixteen_concurrent_copies_of_a_step_have_one_effect(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::crowded(options, connect, 32).await;
    futures::stream::iter(0..PAYMENTS)
        .for_each_concurrent(2, async |n| {
            let p = bank.payment_at(Stage::Accepted, &format!("k{n}")).await;
            let held = join_all((0..TWINS).map(|_| bank.reserve(&p))).await;
            assert!(held.iter().all(|outcome| *outcome == ReserveOutcome::Held));
            bank.attempt(&p).await;
            if n % 2 == 0 {
                bank.ledger.store_callback(&support::success(&p, &support::event(&p, "s"))).await.unwrap();
                let settled = join_all((0..TWINS).map(|_| bank.debit(&p))).await;
                assert!(settled.iter().all(|outcome| *outcome == DebitOutcome::Done));
            } else {
                bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired).await.unwrap();
                bank.ledger
                    .record_void(&p.id, payment_protocol::cancel::VoidReason::Cancelled)
                    .await
                    .unwrap();
                let released =
                    join_all((0..TWINS).map(|_| bank.ledger.release(&p.id, &Cause::SlaExpired))).await;
                assert!(
                    released
                        .into_iter()
                        .all(|outcome| outcome.unwrap() == ReleaseStepOutcome::Done(Cause::SlaExpired))
                );
            }
        })
        .await;
    let entries = "SELECT kind || ' ' || count(*) FROM journal GROUP BY kind ORDER BY kind";
    assert_eq!(bank.words(entries).await, ["debit 25", "fund 50", "release 25", "reserve 50"]);
    let ends = "SELECT state || ' ' || count(*) FROM payments GROUP BY state ORDER BY state";
    assert_eq!(bank.words(ends).await, ["settled 25", "timed_out 25"]);
    bank.audit().await;
    bank.close().await;
}

/// R3: settle and release of one payment at once, whatever the switch said: never both.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r3_of_a_concurrent_debit_and_release_one_succeeds(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::crowded(options, connect, 16).await;
    for (n, stage) in
        [Stage::Confirmed, Stage::Void, Stage::Recalled, Stage::Sent].into_iter().cycle().take(24).enumerate()
    {
        let p = bank.payment_at(stage, &format!("k{n}")).await;
        let cause = Cause::SlaExpired;
        let twins = (0..8).map(|_| join(bank.debit(&p), bank.ledger.release(&p.id, &cause)));
        for (settled, released) in join_all(twins).await {
            let both =
                (settled == DebitOutcome::Done, matches!(released.unwrap(), ReleaseStepOutcome::Done(_)));
            let wanted = (stage == Stage::Confirmed, matches!(stage, Stage::Void | Stage::Recalled));
            assert_eq!(both, wanted, "{stage:?}");
        }
    }
    bank.audit().await;
    bank.close().await;
}

/// R34: many writers on two accounts, payments in opposite directions, ends of both kinds: no lost
/// update, no deadlock.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r34_payments_in_opposite_directions_do_not_deadlock(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::crowded(options, connect, 32).await;
    let (a, b) = (bank.open("a", 64 * AMOUNT_MINOR).await, bank.open("b", 64 * AMOUNT_MINOR).await);
    let writers = (0..64).map(|n: i64| {
        let (bank, source, destination) = if n % 2 == 0 { (&bank, &a, &b) } else { (&bank, &b, &a) };
        let order = NewPayment {
            source_account: source.clone(),
            destination_account: destination.clone(),
            ..bank.order(&format!("k{n}"))
        };
        async move {
            let p = bank.take(&order).await;
            let stage = if n % 4 < 2 { Stage::Settled } else { Stage::Released };
            bank.bring(&p, stage).await;
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

/// More payments than money: as many hold as the balance allows, and no cent more.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_reserves_never_overdraw_a_balance(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::crowded(options, connect, 16).await;
    let account = bank.open("purse", FUNDS_MINOR).await;
    let orders: Vec<_> = (0..32)
        .map(|n| NewPayment { source_account: account.clone(), ..bank.order(&format!("k{n}")) })
        .collect();
    let reserves = orders.iter().map(|order| async { bank.reserve(&bank.take(order).await).await });
    let outcomes = join_all(reserves).await;
    let count = |wanted: ReserveOutcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    assert_eq!(count(ReserveOutcome::Held), 10);
    assert_eq!(count(ReserveOutcome::Refused(ReserveRefusal::InsufficientFunds)), 22);
    bank.audit().await;
    bank.close().await;
}

/// A freeze beside a settle: debited before it, or refused for good; the hold says which.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_freeze_concurrent_with_a_debit_precedes_or_follows_it(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::crowded(options, connect, 4).await;
    for round in 0..30 {
        let p = bank.payment_at(Stage::Confirmed, &format!("round {round}")).await;
        let (settled, ()) = join(bank.debit(&p), bank.freeze(&p)).await;
        let hold = bank.hold(&p).await;
        match &settled {
            DebitOutcome::Done => assert_eq!(hold, "debited"),
            DebitOutcome::Refused { .. } => assert_eq!(hold, "open"),
            other => panic!("{other:?}"),
        }
        assert_eq!(bank.debit(&p).await, settled, "and it stands");
    }
    bank.audit().await;
    bank.close().await;
}
