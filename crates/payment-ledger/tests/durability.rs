//! `durability`: settings of the real server under which a confirmed commit can be lost.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

use payment_ledger::Ledger;
use payment_ledger::durability::CommitLossReason::{self, StandbyNotAwaited, SynchronousCommitOff};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgPool};

/// Changes the default of every new session on the test's database.
async fn set_synchronous_commit(pool: &PgPool, level: &str) {
    let database: String = sqlx::query_scalar("SELECT current_database()").fetch_one(pool).await.unwrap();
    let statement = format!("ALTER DATABASE \"{database}\" SET synchronous_commit = {level}");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(pool).await.unwrap();
}

/// The reasons that a new session of the services sees, and the readiness check's warnings.
async fn reported(connect: &PgConnectOptions) -> (Vec<CommitLossReason>, Vec<String>) {
    let as_service = connect.clone().options([("role", "payments_service")]);
    let pool = PgPoolOptions::new().max_connections(1).connect_with(as_service).await.unwrap();
    let ledger = Ledger::new(pool.clone());
    let reasons = ledger.commit_settings().await.unwrap().commit_loss_reasons();
    let warnings = ledger.readiness()().await.unwrap();
    pool.close().await;
    (reasons, warnings)
}

/// The server of the tests may have standbys or weaker settings of its own: only the change is compared.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_service_session_sees_that_the_server_may_lose_commits(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let owner = options.connect_with(connect.clone()).await.unwrap();
    set_synchronous_commit(&owner, "on").await;
    let (reasons, _) = reported(&connect).await;
    assert!(!reasons.contains(&SynchronousCommitOff), "{reasons:?}");

    set_synchronous_commit(&owner, "off").await;
    let (reasons, warnings) = reported(&connect).await;
    assert!(reasons.contains(&SynchronousCommitOff), "{reasons:?}");
    assert_eq!(warnings.len(), 1, "one warning for all reasons: {warnings:?}");
    assert!(warnings[0].contains("synchronous_commit is off"), "{warnings:?}");

    // The slot of a standby that commits do not wait for. It ends with its session, and keeps no WAL.
    set_synchronous_commit(&owner, "local").await;
    let mut standby = connect.connect().await.unwrap();
    sqlx::query("SELECT pg_create_physical_replication_slot('test_' || pg_backend_pid(), false, true)")
        .execute(&mut standby)
        .await
        .unwrap();
    let (reasons, _) = reported(&connect).await;
    assert!(reasons.contains(&StandbyNotAwaited), "{reasons:?}");
    owner.close().await;
}
