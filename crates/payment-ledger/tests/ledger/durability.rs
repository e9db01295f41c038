//! `durability`: settings of the real server under which a confirmed commit can be lost.

use crate::support::{Bank, Stage, event, success};
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
    let as_service = connect.clone().options([("role", "payment_worker")]);
    let pool = PgPoolOptions::new().max_connections(1).connect_with(as_service).await.unwrap();
    let ledger = Ledger::new(pool.clone());
    let reasons = ledger.commit_settings().await.unwrap().commit_loss_reasons();
    let warnings = ledger.readiness()().await.unwrap();
    pool.close().await;
    (reasons, warnings)
}

/// The labels of the metric of these reasons are part of its interface.
#[test]
fn each_reason_for_a_lost_commit_has_its_label() {
    let labels: Vec<_> = CommitLossReason::ALL.iter().map(|reason| reason.as_str()).collect();
    let expected = [
        "fsync_off",
        "full_page_writes_off",
        "synchronous_commit_off",
        "standby_not_awaited",
        "standby_disk_not_awaited",
    ];
    assert_eq!(labels, expected);
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

/// What a lease or a mark saves is a repetition: its commit does not wait for the disk or a standby. The commit of every step does.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn only_leases_and_marks_do_not_wait_for_the_disk(options: PgPoolOptions, connect: PgConnectOptions) {
    let connect = connect.options([("synchronous_commit", "on")]);
    let bank = Bank::with_connections(options, connect, 2).await;
    let p = bank.payment_at(Stage::Accepted, "k").await;
    for table in ["payments", "inbox"] {
        bank.sql(&format!(
            "CREATE FUNCTION {table}_committed() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO committed VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
             CREATE TABLE IF NOT EXISTS committed (level text);
             CREATE CONSTRAINT TRIGGER {table}_committed AFTER UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION {table}_committed()"
        ))
        .await;
    }
    let waited = async |step: &str, expected: &str| {
        let levels = bank.words("DELETE FROM committed RETURNING level").await;
        assert!(!levels.is_empty() && levels.iter().all(|level| level == expected), "{step}: {levels:?}");
    };
    let ledger = &bank.ledger;
    assert_eq!(ledger.claim_accepted(1, 1_000, 10).await.unwrap().len(), 1);
    waited("claim_accepted", "off").await;
    ledger.mark_started(&p.id).await.unwrap();
    waited("mark_started", "off").await;
    bank.reserve(&p).await;
    waited("reserve", "on").await;
    assert_eq!(ledger.claim_idle(1, 0).await.unwrap().len(), 1);
    waited("claim_idle", "off").await;
    bank.attempt(&p).await;
    waited("record_attempt", "on").await;
    ledger.store_callback(&success(&p, &event(&p, "s"))).await.unwrap();
    waited("store_callback", "on").await;
    bank.sql("UPDATE inbox SET next_delivery_at = clock_timestamp()").await;
    waited("a commit of this test", "on").await;
    let messages = ledger.claim_undelivered(1, 0).await.unwrap();
    waited("claim_undelivered", "off").await;
    ledger.mark_delivered(messages[0].inbox_id).await.unwrap();
    waited("mark_delivered", "off").await;
    bank.close().await;
}
