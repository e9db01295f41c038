//! A caller that goes away while its transaction begins: the connection goes back to the pool without one.

use futures::poll;
use postgres_kit::Pool;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

async fn transaction_id(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT txid_current()").fetch_one(pool).await.unwrap()
}

/// Within a transaction that was left open, what a later user writes would be confirmed and never committed.
#[sqlx::test(migrations = false)]
async fn an_interrupted_begin_leaves_no_open_transaction(options: PgPoolOptions, connect: PgConnectOptions) {
    let pool = options.max_connections(1).connect_with(connect).await.unwrap();
    for polls in (1..2_000).step_by(13) {
        let limited = Pool::from(pool.clone());
        let mut begin = Box::pin(limited.begin());
        for _ in 0..polls {
            if poll!(&mut begin).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(begin);
        let first = transaction_id(&pool).await;
        assert_ne!(first, transaction_id(&pool).await, "after {polls} polls a transaction is open");
    }
    pool.close().await;
}
