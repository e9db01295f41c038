//! `operator::temporal_namespace`: the first namespace is recorded.

use crate::support::Bank;
use futures::future::join_all;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

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
