//! Wake-up notifications, on a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use postgres_kit::wake_up::WakeUpListener;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _};
use tokio::time::timeout;

const WITHIN: Duration = Duration::from_secs(20);

/// R35: the listener keeps a connection for as long as its process runs.
#[sqlx::test(migrations = false)]
async fn r35_a_pool_of_one_connection_is_left_to_its_users(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let pool = options.max_connections(1).acquire_timeout(WITHIN).connect_with(connect).await.unwrap();
    let mut listener = WakeUpListener::open(&pool, "tested").await;
    sqlx::query("SELECT pg_notify('tested', '')").execute(&pool).await.expect("the pool has no connection");
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
    let mut listener = WakeUpListener::open(&pool, "tested").await;
    let allow = format!("ALTER DATABASE {name:?} ALLOW_CONNECTIONS true");
    sqlx::query(AssertSqlSafe(allow)).execute(&mut server).await.unwrap();

    timeout(WITHIN, listener.wait()).await.expect("the listener was not opened");
    sqlx::query("SELECT pg_notify('tested', '')").execute(&pool).await.unwrap();
    timeout(WITHIN, listener.wait()).await.expect("the notification woke nobody up");
}
