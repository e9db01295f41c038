//! Connections whose server goes away without a word, and those that their callers give up, on a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "the tests are about transactions")]

use std::io;
use std::time::Duration;

use postgres_kit::Pool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit::proxy::FaultProxy;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(1);
const WITHIN: Duration = Duration::from_secs(20);
const CONNECTIONS: u32 = 3;

/// A pool behind a proxy.
async fn behind_proxy(
    options: PgPoolOptions,
    connect: PgConnectOptions,
    connections: u32,
) -> (FaultProxy, Pool) {
    let proxy = FaultProxy::start(&format!("{}:{}", connect.get_host(), connect.get_port())).await.unwrap();
    let port = proxy.address.rsplit(':').next().unwrap().parse().unwrap();
    let pool = options.max_connections(connections).acquire_timeout(WITHIN);
    let pool = pool.connect_lazy_with(connect.host("127.0.0.1").port(port));
    (proxy, Pool::from(pool).with_statement_limit(LIMIT))
}

async fn transaction_id(pool: &Pool) -> i64 {
    sqlx::query_scalar("SELECT txid_current()").fetch_one(pool).await.unwrap()
}

fn assert_unanswered<T>(result: sqlx::Result<T>) {
    let Err(sqlx::Error::Io(error)) = result else { panic!("the statement was answered") };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
}

/// Each way to wait for an answer has the limit, and leaves no connection behind that is counted and useless.
#[sqlx::test(migrations = false)]
async fn each_statement_of_a_silent_connection_ends_and_its_place_is_given_to_a_new_one(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let (proxy, pool) = behind_proxy(options, connect, CONNECTIONS).await;
    for _ in 0..CONNECTIONS {
        let mut connection = pool.acquire().await.unwrap();
        let transaction = pool.begin().await.unwrap();
        let mut second = pool.begin().await.unwrap();
        proxy.silence();
        let read = sqlx::query("SELECT 1").fetch_all(&mut connection);
        assert_unanswered(timeout(WITHIN, read).await.unwrap());
        let repeated = sqlx::query("SELECT 1").fetch_all(&mut connection);
        assert_unanswered(
            timeout(LIMIT, repeated).await.expect("a connection without an answer is used again"),
        );
        assert_unanswered(timeout(WITHIN, transaction.commit()).await.unwrap());
        let one = sqlx::query("SELECT 1").fetch_optional(&mut *second);
        assert_unanswered(timeout(WITHIN, one).await.unwrap());
        assert_unanswered(timeout(WITHIN, second.rollback()).await.unwrap());
        drop(connection);
        timeout(WITHIN, transaction_id(&pool)).await.expect("the pool has no connection");
    }
    pool.inner().close().await;
}

/// The server goes away between the last answer and the return to the pool.
#[sqlx::test(migrations = false)]
async fn connections_that_turn_silent_on_their_way_back_keep_no_place_in_the_pool(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let (proxy, pool) = behind_proxy(options, connect, CONNECTIONS).await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(pool.begin().await.unwrap());
    }
    proxy.silence();
    drop(held);
    timeout(WITHIN, transaction_id(&pool)).await.expect("the pool has no connection");
    pool.inner().close().await;
}

/// A caller gives its statement up, as a request does whose client has gone.
#[sqlx::test(migrations = false)]
async fn a_connection_whose_statement_was_given_up_is_closed(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let (_proxy, pool) = behind_proxy(options, connect, 1).await;
    let pool = pool.with_statement_limit(3 * WITHIN);
    let slow = sqlx::query("SELECT pg_sleep(60)").execute(&pool);
    timeout(LIMIT / 2, slow).await.unwrap_err();
    timeout(WITHIN, transaction_id(&pool)).await.expect("the pool has no connection");
    // The server finishes the statement, unless somebody ends its session.
    let given_up = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let ended: i64 = sqlx::query_scalar(given_up).fetch_one(pool.inner()).await.unwrap();
    assert_eq!(ended, 1);
    pool.inner().close().await;
}

/// A transaction that is dropped between two statements.
#[sqlx::test(migrations = false)]
async fn a_dropped_transaction_changes_nothing_and_leaves_no_open_one(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let (_proxy, pool) = behind_proxy(options, connect, 1).await;
    sqlx::query("CREATE TABLE written (n int)").execute(&pool).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *tx).await.unwrap();
    sqlx::query("INSERT INTO written VALUES (1)").execute(&mut *tx).await.unwrap();
    drop(tx);
    let written: i64 = sqlx::query_scalar("SELECT count(*) FROM written").fetch_one(&pool).await.unwrap();
    assert_eq!(written, 0);
    assert_ne!(transaction_id(&pool).await, transaction_id(&pool).await, "a transaction is open");
    let next: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&pool).await.unwrap();
    assert_eq!(pid, next, "the connection answers, and is used again");
    pool.inner().close().await;
}

/// The error of a statement says nothing against its connection.
#[sqlx::test(migrations = false)]
async fn a_connection_is_used_again_after_a_refused_statement(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let (_proxy, pool) = behind_proxy(options, connect, 1).await;
    let mut connection = pool.acquire().await.unwrap();
    sqlx::query("SELECT 1 / 0").execute(&mut connection).await.unwrap_err();
    sqlx::query("SELECT 1").execute(&mut connection).await.unwrap();
    drop(connection);
    transaction_id(&pool).await;
    pool.inner().close().await;
}
