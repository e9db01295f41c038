//! `admission::limits`: limits are checked at the reserve, under concurrency, and restored by a release.

use crate::support::{Bank, Sample, account_id, eur, tenant};
use futures::future::join_all;
use iso_currency::Currency;
use payment_ledger::admission::limits::{LimitBounds, LimitScope};
use payment_ledger::steps::accept::NewPayment;
use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::ids::AccountId;
use payment_protocol::port::ReserveOutcome;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

const EXCEEDED: ReserveOutcome = ReserveOutcome::Refused(ReserveRefusal::LimitExceeded);

async fn set(bank: &Bank, scope: &LimitScope, bounds: LimitBounds) {
    bank.set_limit(scope, Currency::EUR, bounds, "a test").await;
}

async fn accept_payment(bank: &Bank, account: &AccountId, minor: i64, key: &str) -> Sample {
    let order = NewPayment {
        source_account: account.clone(),
        money: eur(minor),
        ..bank.order(&format!("{account} {key}"))
    };
    bank.accept(&order).await
}

/// Today's usage by scope.
async fn used(bank: &Bank) -> Vec<String> {
    bank.words("SELECT scope || ' ' || used_minor || ' in ' || used_count FROM limit_days ORDER BY scope")
        .await
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r10_a_payment_limit_can_be_reached_and_not_exceeded(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.avoid_midnight().await;
    let bounds = |per_payment_minor, per_day_minor, per_day_count| LimitBounds {
        per_payment_minor,
        per_day_minor,
        per_day_count,
    };
    #[rustfmt::skip]
    let table = [
        // account's limit, tenant's limit, amounts, whether each is reserved
        (bounds(None, None, None),             bounds(None, None, None),             vec![100, 9_900],      vec![true, true]),
        (bounds(Some(100), None, None),        bounds(None, None, None),             vec![100, 101, 100],   vec![true, false, true]),
        (bounds(None, Some(250), None),        bounds(None, None, None),             vec![100, 151, 150, 1],vec![true, false, true, false]),
        (bounds(None, None, Some(2)),          bounds(None, None, None),             vec![1, 1, 1],         vec![true, true, false]),
        (bounds(None, None, None),             bounds(Some(99), None, None),         vec![100, 99],         vec![false, true]),
        (bounds(None, None, None),             bounds(None, Some(100), None),        vec![60, 60, 40],      vec![true, false, true]),
        (bounds(None, None, None),             bounds(None, None, Some(1)),          vec![1, 1],            vec![true, false]),
        (bounds(None, Some(1_000), None),      bounds(None, Some(100), None),        vec![60, 60, 40],      vec![true, false, true]),
        (bounds(None, Some(0), None),          bounds(None, None, None),             vec![1],               vec![false]),
        (bounds(Some(i64::MAX), Some(i64::MAX), Some(i64::MAX)), bounds(None, Some(i64::MAX), None), vec![10_000], vec![true]),
    ];
    for (n, (account_bounds, tenant_bounds, amounts, expected)) in table.into_iter().enumerate() {
        let account = bank.open(&format!("purse-{n}"), crate::support::FUNDS_MINOR).await;
        set(&bank, &LimitScope::Account(account.clone()), account_bounds).await;
        set(&bank, &LimitScope::Tenant(tenant()), tenant_bounds).await;
        // Each case starts without usage.
        bank.sql("DELETE FROM limit_days WHERE scope = 'tenant'").await;
        for (index, (minor, is_held)) in amounts.into_iter().zip(expected).enumerate() {
            let p = accept_payment(&bank, &account, minor, &format!("{index}")).await;
            let expected = if is_held { ReserveOutcome::Held } else { EXCEEDED };
            assert_eq!(bank.reserve(&p).await, expected, "row {n}, payment {index}");
            assert_eq!(bank.reserve(&p).await, expected, "row {n}: a repeat changed the outcome");
            if !is_held {
                assert_eq!(bank.state(&p).await, "rejected");
                assert_eq!(bank.hold(&p).await, "none");
            }
        }
    }
    bank.audit().await;
}

/// A release restores the usage of the day of its reserve, once. A payment reserved before the limit existed restores nothing.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r10_a_release_restores_the_payment_limit_of_the_reserves_day(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.avoid_midnight().await;
    let account = bank.open("purse", crate::support::FUNDS_MINOR).await;
    let before = accept_payment(&bank, &account, 1_000, "before").await;
    assert_eq!(bank.reserve(&before).await, ReserveOutcome::Held);
    let day = LimitBounds { per_day_minor: Some(2_000), per_day_count: Some(2), ..LimitBounds::default() };
    set(&bank, &LimitScope::Account(account.clone()), day).await;
    set(&bank, &LimitScope::Tenant(tenant()), day).await;
    assert_eq!(used(&bank).await, [""; 0], "expected no usage row for an uncounted reserve");

    let (one, two) = (
        accept_payment(&bank, &account, 1_000, "one").await,
        accept_payment(&bank, &account, 1_000, "two").await,
    );
    assert_eq!(
        [bank.reserve(&one).await, bank.reserve(&two).await],
        [ReserveOutcome::Held, ReserveOutcome::Held]
    );
    let full = ["account 2000 in 2", "tenant 2000 in 2"];
    assert_eq!(used(&bank).await, full);
    let three = accept_payment(&bank, &account, 1, "three").await;
    assert_eq!(bank.reserve(&three).await, EXCEEDED);

    // The reserves were made yesterday.
    bank.sql("UPDATE limit_days SET day = day - 1; UPDATE limit_uses SET day = day - 1").await;
    for _ in 0..2 {
        bank.ledger.release(&before.id, &Cause::SlaExpired).await.unwrap();
        bank.ledger.release(&one.id, &Cause::SlaExpired).await.unwrap();
    }
    assert_eq!(used(&bank).await, ["account 1000 in 1", "tenant 1000 in 1"]);
    let limits = bank.ledger.limits(10).await.unwrap();
    assert_eq!(
        limits.iter().map(|limit| limit.used_minor).sum::<i64>(),
        0,
        "expected no usage today: {limits:?}"
    );
    assert_eq!(bank.reserve(&three).await, EXCEEDED, "a release changed a recorded refusal");
    bank.audit().await;
}

/// 64 concurrent reserves from eight accounts of one tenant: exactly as many succeed as the limit allows.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r34_concurrent_reserves_do_not_exceed_a_payment_limit(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 32).await;
    bank.avoid_midnight().await;
    set(
        &bank,
        &LimitScope::Tenant(tenant()),
        LimitBounds { per_day_minor: Some(2_500), ..LimitBounds::default() },
    )
    .await;
    let mut payments = vec![];
    for n in 0..64 {
        let account = account_id(&format!("purse-{}", n % 8));
        if n < 8 {
            bank.open(account.as_str(), crate::support::FUNDS_MINOR).await;
            let own = LimitBounds { per_day_count: Some(7), ..LimitBounds::default() };
            set(&bank, &LimitScope::Account(account.clone()), own).await;
        }
        payments.push(accept_payment(&bank, &account, 100, &n.to_string()).await);
    }
    let outcomes = join_all(payments.iter().map(|p| bank.reserve(p))).await;
    let held = outcomes.iter().filter(|outcome| **outcome == ReserveOutcome::Held).count();
    assert_eq!((held, outcomes.iter().filter(|outcome| **outcome == EXCEEDED).count()), (25, 39));
    let tenants = "SELECT used_minor FROM limit_days WHERE scope = 'tenant'";
    assert_eq!(bank.number(tenants).await, 2_500);
    let releases = payments.iter().map(|p| bank.ledger.release(&p.id, &Cause::SlaExpired));
    join_all(releases).await.into_iter().for_each(|released| {
        released.unwrap();
    });
    assert_eq!(bank.number("SELECT sum(used_minor + used_count)::bigint FROM limit_days").await, 0);
    bank.audit().await;
    bank.close().await;
}

/// The newest limit applies, a limit without bounds removes it, and all rows are kept.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_newest_payment_limit_applies_and_old_limit_rows_never_change(pool: PgPool) {
    let bank = Bank::new(pool);
    let account = bank.open("purse", crate::support::FUNDS_MINOR).await;
    let scope = LimitScope::Account(account.clone());
    for (minor, outcome) in
        [(Some(10), EXCEEDED), (Some(1_000), ReserveOutcome::Held), (None, ReserveOutcome::Held)]
    {
        set(&bank, &scope, LimitBounds { per_payment_minor: minor, ..LimitBounds::default() }).await;
        let p = accept_payment(&bank, &account, 1_000, &minor.unwrap_or(0).to_string()).await;
        assert_eq!(bank.reserve(&p).await, outcome, "{minor:?}");
    }
    assert_eq!(bank.ledger.limits(10).await.unwrap(), []);
    assert_eq!(bank.number("SELECT count(*) FROM limits").await, 3);
    // A limit applies to its currency only.
    let dollars = LimitBounds { per_payment_minor: Some(1), ..LimitBounds::default() };
    bank.set_limit(&scope, Currency::USD, dollars, "a test").await;
    assert_eq!(
        bank.reserve(&accept_payment(&bank, &account, 1_000, "euros").await).await,
        ReserveOutcome::Held
    );
    for sql in ["UPDATE limits SET per_payment_minor = 1", "DELETE FROM limits", "TRUNCATE limits"] {
        assert_eq!(bank.refused(sql).await.0, "23001", "{sql}");
    }
}
