//! A page waits for writers that already have a position on it: a position is assigned before the commit, and a page read
//! in between would skip it. A trigger stops the writer in between.

use std::sync::Arc;

use reqwest::Method;
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{ConnectOptions, Executor};

use crate::test_switch::{TIMEOUT, TestSwitch, order};

/// Stops writers of rows in `table` whose transfer has the reference `slow` before their commit, while the returned
/// connection holds its lock.
async fn stop_slow_writers(connect: &PgConnectOptions, table: &str, id: &str) -> PgConnection {
    let mut connection = connect.connect().await.unwrap();
    connection.execute("SELECT pg_advisory_lock(4711)").await.unwrap();
    let trigger = format!(
        "CREATE FUNCTION stop_slow() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF EXISTS (SELECT 1 FROM transfers WHERE id = NEW.{id} AND reference = 'slow') THEN
                 PERFORM pg_advisory_xact_lock(4711);
             END IF;
             RETURN NULL;
         END $$;
         CREATE TRIGGER stop_slow AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION stop_slow()"
    );
    connection.execute(sqlx::AssertSqlSafe(trigger)).await.unwrap();
    connection
}

/// Waits until `count` sessions of this database wait for an advisory lock, or until `done` is true.
async fn wait_for_lock_waiters(connection: &mut PgConnection, count: i64, done: impl Fn() -> bool) {
    let waiting = "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
                   WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()";
    let waited = tokio::time::timeout(TIMEOUT, async {
        while !done() {
            let waiters: i64 = sqlx::query_scalar(waiting).fetch_one(&mut *connection).await.unwrap();
            if waiters >= count {
                break;
            }
        }
    });
    waited.await.unwrap();
}

/// Reads the page at `path` while the slow writer is stopped and a quick one has committed.
async fn read_during_write(switch: &Arc<TestSwitch>, mut slow: PgConnection, path: &'static str) -> Value {
    let reader = switch.clone();
    let page = tokio::spawn(async move { reader.get(path).await.1 });
    wait_for_lock_waiters(&mut slow, 2, || page.is_finished()).await;
    slow.execute("SELECT pg_advisory_unlock(4711)").await.unwrap();
    page.await.unwrap()
}

fn count(page: &Value, field: &str) -> usize {
    page[field].as_array().unwrap().len()
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_statement_page_waits_for_an_uncommitted_transfer_end(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = Arc::new(TestSwitch::start(options, connect.clone()).await);
    for reference in ["slow", "quick"] {
        switch.submit(order(reference)).await;
    }
    let mut slow = stop_slow_writers(&connect, "statement", "transfer_id").await;
    let ending = switch.clone();
    let ended = tokio::spawn(async move { ending.admin(Method::POST, "transfers/slow/settle", None).await });
    wait_for_lock_waiters(&mut slow, 1, || false).await;
    switch.admin(Method::POST, "transfers/quick/settle", None).await;
    let page = read_during_write(&switch, slow, "/v1/statement").await;
    assert_eq!(count(&page, "entries"), 2, "{page}");
    ended.await.unwrap();
    Arc::into_inner(switch).unwrap().stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_statement_page_waits_for_the_completion_task(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = Arc::new(TestSwitch::start(options, connect.clone()).await);
    let mut slow = stop_slow_writers(&connect, "statement", "transfer_id").await;
    switch.set_behaviour("slow", serde_json::json!({"settle_after_ms": 0})).await;
    for reference in ["slow", "quick"] {
        switch.submit(order(reference)).await;
    }
    wait_for_lock_waiters(&mut slow, 1, || false).await;
    switch.cancel("quick", "k").await;
    let page = read_during_write(&switch, slow, "/v1/statement").await;
    assert_eq!(count(&page, "entries"), 2, "{page}");
    Arc::into_inner(switch).unwrap().stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_listing_page_waits_for_an_uncommitted_transfer(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = Arc::new(TestSwitch::start(options, connect.clone()).await);
    let mut slow = stop_slow_writers(&connect, "transfers", "id").await;
    let sending = switch.clone();
    let sent = tokio::spawn(async move { sending.submit(order("slow")).await });
    wait_for_lock_waiters(&mut slow, 1, || false).await;
    switch.submit(order("quick")).await;
    let path = "/v1/transfers?creditor_account=DE02120300000000202051";
    let page = read_during_write(&switch, slow, path).await;
    assert_eq!(count(&page, "transfers"), 2, "{page}");
    sent.await.unwrap();
    Arc::into_inner(switch).unwrap().stop().await;
}
