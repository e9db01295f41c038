//! A page waits for whoever already has a place on it: the place is handed out
//! before the commit, and a page read in between would be without it for ever.
//! The writer is stopped in between by a trigger that waits for the test.

use std::sync::Arc;

use reqwest::Method;
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{ConnectOptions, Executor};

use crate::test_switch::{TIMEOUT, TestSwitch, order};

/// Makes writers of rows in `table` wait, before they commit, while the returned
/// connection has its lock, if their transfer has the reference `slow`.
async fn stop_slow_ones(connect: &PgConnectOptions, table: &str, id: &str) -> PgConnection {
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

/// Waits until so many in this database wait for an advisory lock, or `enough` says that they will not.
async fn until_waiting(connection: &mut PgConnection, count: i64, enough: impl Fn() -> bool) {
    let waiting = "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
                   WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()";
    let looked = tokio::time::timeout(TIMEOUT, async {
        while !enough() {
            let seen: i64 = sqlx::query_scalar(waiting).fetch_one(&mut *connection).await.unwrap();
            if seen >= count {
                break;
            }
        }
    });
    looked.await.unwrap();
}

/// With the slow one stopped and a quick one committed, reads the page at `path`.
async fn read_across(switch: &Arc<TestSwitch>, mut slow: PgConnection, path: &'static str) -> Value {
    let reader = switch.clone();
    let page = tokio::spawn(async move { reader.get(path).await.1 });
    until_waiting(&mut slow, 2, || page.is_finished()).await;
    slow.execute("SELECT pg_advisory_unlock(4711)").await.unwrap();
    page.await.unwrap()
}

fn count(page: &Value, field: &str) -> usize {
    page[field].as_array().unwrap().len()
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn statement_waits_for_an_end_under_way(options: PgPoolOptions, connect: PgConnectOptions) {
    let switch = Arc::new(TestSwitch::start(options, connect.clone()).await);
    for reference in ["slow", "quick"] {
        switch.submit(order(reference)).await;
    }
    let mut slow = stop_slow_ones(&connect, "statement", "transfer_id").await;
    let ending = switch.clone();
    let ended = tokio::spawn(async move { ending.admin(Method::POST, "transfers/slow/settle", None).await });
    until_waiting(&mut slow, 1, || false).await;
    switch.admin(Method::POST, "transfers/quick/settle", None).await;
    let page = read_across(&switch, slow, "/v1/statement").await;
    assert_eq!(count(&page, "entries"), 2, "{page}");
    ended.await.unwrap();
    Arc::into_inner(switch).unwrap().stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn statement_waits_for_the_settler(options: PgPoolOptions, connect: PgConnectOptions) {
    let switch = Arc::new(TestSwitch::start(options, connect.clone()).await);
    let mut slow = stop_slow_ones(&connect, "statement", "transfer_id").await;
    switch.set_behaviour("slow", serde_json::json!({"settle_after_ms": 0})).await;
    for reference in ["slow", "quick"] {
        switch.submit(order(reference)).await;
    }
    until_waiting(&mut slow, 1, || false).await;
    switch.cancel("quick", "k").await;
    let page = read_across(&switch, slow, "/v1/statement").await;
    assert_eq!(count(&page, "entries"), 2, "{page}");
    Arc::into_inner(switch).unwrap().stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn listing_waits_for_a_transfer_under_way(options: PgPoolOptions, connect: PgConnectOptions) {
    let switch = Arc::new(TestSwitch::start(options, connect.clone()).await);
    let mut slow = stop_slow_ones(&connect, "transfers", "id").await;
    let sending = switch.clone();
    let sent = tokio::spawn(async move { sending.submit(order("slow")).await });
    until_waiting(&mut slow, 1, || false).await;
    switch.submit(order("quick")).await;
    let path = "/v1/transfers?creditor_account=DE02120300000000202051";
    let page = read_across(&switch, slow, path).await;
    assert_eq!(count(&page, "transfers"), 2, "{page}");
    sent.await.unwrap();
    Arc::into_inner(switch).unwrap().stop().await;
}
