//! Wake-up notifications, on a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use postgres_kit::Pool;
use postgres_kit::wake_up::WakeUpListener;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _};
use testkit::proxy::{Direction, FaultProxy};
use tokio::time::timeout;

const WITHIN: Duration = Duration::from_secs(60);

/// R35: the listener keeps a connection for as long as its process runs.
#[sqlx::test(migrations = false)]
async fn r35_a_pool_of_one_connection_is_left_to_its_users(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = options.max_connections(1).acquire_timeout(WITHIN).connect_with(connect).await.unwrap();
    let mut listener = WakeUpListener::open(&pool.clone().into(), "tested").await;
    sqlx::query("SELECT pg_notify('tested', '')").execute(&pool).await.expect("the pool has no connection");
    timeout(WITHIN, listener.wait()).await.expect("the notification woke nobody up");
}

/// The task gives each wait up after a moment, to poll.
#[sqlx::test(migrations = false)]
async fn a_listener_whose_server_went_away_without_a_word_is_opened_again(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let proxy = FaultProxy::start(&format!("{}:{}", connect.get_host(), connect.get_port())).await.unwrap();
    let port = proxy.address.rsplit(':').next().unwrap().parse().unwrap();
    let behind = options.connect_with(connect.host("127.0.0.1").port(port)).await.unwrap();
    let pool = Pool::from(behind).with_statement_limit(Duration::from_secs(1));
    let mut listener = WakeUpListener::open(&pool, "tested").await;
    proxy.silence();
    // A connection takes longer than a wait.
    proxy.delay(Direction::ToClient, Duration::from_millis(25));
    let woken = async { while timeout(Duration::from_millis(50), listener.wait()).await.is_err() {} };
    timeout(WITHIN, woken).await.expect("nothing was noticed");
    sqlx::query("SELECT pg_notify('tested', '')").execute(&pool).await.unwrap();
    timeout(WITHIN, listener.wait()).await.expect("the notification woke nobody up");
}

/// A process that starts while the database takes no connection must not poll for the rest of its life.
#[sqlx::test(migrations = false)]
async fn a_listener_that_could_not_be_opened_is_opened_later(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let name = connect.get_database().unwrap().to_owned();
    let mut server = connect.clone().database("postgres").connect().await.unwrap();
    let pool = options.max_connections(1).acquire_timeout(WITHIN).connect_with(connect).await.unwrap();
    let refuse = format!("ALTER DATABASE {name:?} ALLOW_CONNECTIONS false");
    sqlx::query(AssertSqlSafe(refuse)).execute(&mut server).await.unwrap();
    let mut listener = WakeUpListener::open(&pool.clone().into(), "tested").await;
    let allow = format!("ALTER DATABASE {name:?} ALLOW_CONNECTIONS true");
    sqlx::query(AssertSqlSafe(allow)).execute(&mut server).await.unwrap();

    timeout(WITHIN, listener.wait()).await.expect("the listener was not opened");
    sqlx::query("SELECT pg_notify('tested', '')").execute(&pool).await.unwrap();
    timeout(WITHIN, listener.wait()).await.expect("the notification woke nobody up");
}
