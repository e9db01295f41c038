//! `operator::temporal_namespace`: the first namespace is recorded, another one only by an operator.

use crate::support::Bank;
use futures::future::join_all;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn another_temporal_namespace_is_recorded_only_by_an_operator(pool: PgPool) {
    let bank = Bank::new(pool);
    assert_eq!(bank.ledger.temporal_namespace("first").await.unwrap(), "first");
    assert_eq!(bank.ledger.temporal_namespace("other").await.unwrap(), "first");
    assert!(bank.ledger.accept_temporal_namespace("other", "", "a restore").await.is_err());
    assert!(bank.ledger.accept_temporal_namespace("other", "Ann", "a restore").await.unwrap());
    assert!(!bank.ledger.accept_temporal_namespace("other", "Bob", "again").await.unwrap());
    assert_eq!(bank.ledger.temporal_namespace("first").await.unwrap(), "other");
    // An earlier one may be accepted again.
    assert!(bank.ledger.accept_temporal_namespace("first", "Ann", "the way back").await.unwrap());
    let history =
        "SELECT concat_ws(' ', number, namespace_id, accepted_by) FROM temporal_namespaces ORDER BY number";
    assert_eq!(bank.words(history).await, ["1 first payment-worker", "2 other Ann", "3 first Ann"]);
}

/// Of payment-workers that start at once in different namespaces, with the rights of the service, one is right.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn of_concurrent_first_temporal_namespaces_one_is_recorded(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let connect = connect.options([("role", "payment_worker")]);
    let bank = Bank::with_connections(options, connect, 8).await;
    let names: Vec<_> = (0..8).map(|n| format!("namespace-{n}")).collect();
    let recorded = join_all(names.iter().map(|name| bank.ledger.temporal_namespace(name))).await;
    let recorded: Vec<_> = recorded.into_iter().map(Result::unwrap).collect();
    assert!(names.contains(&recorded[0]) && recorded.iter().all(|name| *name == recorded[0]), "{recorded:?}");
    bank.close().await;
}
