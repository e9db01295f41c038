//! Wake-up notifications, on a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use postgres_kit::wake_up::WakeUpListener;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
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
