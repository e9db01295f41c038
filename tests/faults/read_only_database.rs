//! R13: the worker's connections lead to a database that takes no writes, as after a failover to a standby that is not promoted yet. A step
//! of the ledger fails at once, again and again.

use std::time::Duration;

use serde_json::json;
use testkit::system::OPENING_MINOR;
use testkit::temporal::EventType;
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// Whether the payment-worker's sessions can write, from now on.
async fn set_read_only(system: &System, read_only: &'static str) -> anyhow::Result<()> {
    let pool = &system.database.pool;
    let database: String = sqlx::query_scalar("SELECT current_database()").fetch_one(pool).await?;
    let statement = format!(
        "ALTER ROLE payment_worker_login IN DATABASE \"{database}\" SET default_transaction_read_only = {read_only}"
    );
    sqlx::query(sqlx::AssertSqlSafe(statement)).execute(pool).await?;
    let sessions = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'payment-worker'";
    sqlx::query(sessions).execute(pool).await?;
    Ok(())
}

/// The step is handed to the server, which repeats it without a workflow task: a task that a worker kept open for the whole outage would
/// grow the history with each heartbeat, up to the limit at which the server terminates the workflow.
#[tokio::test]
async fn r13_a_step_that_the_database_keeps_refusing_is_repeated_by_the_server() -> anyhow::Result<()> {
    let options = SystemOptions::default().with_profile("confirm_by_query", "never");
    let system = System::start("read-only", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    set_read_only(&system, "on").await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;

    system.wait_for_event(&payment.payment_id, EventType::ActivityTaskScheduled).await?;
    let events = system.history(&payment.payment_id).await?.len();
    system.wait_for_attempt(&payment.payment_id, "debit", 4).await?;
    assert_eq!(system.history(&payment.payment_id).await?.len(), events, "the attempts write history");
    assert_eq!(system.available().await?, OPENING_MINOR - 500);

    set_read_only(&system, "off").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    until("the workflow has ended", Duration::from_secs(60), || async {
        let last = system.history(&payment.payment_id).await?.pop();
        let has_ended = last.is_some_and(|event| event.event_type() == EventType::WorkflowExecutionCompleted);
        Ok(has_ended.then_some(()))
    })
    .await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
