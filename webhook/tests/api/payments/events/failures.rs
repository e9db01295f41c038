//! Streams and a database that fails.

use sqlx::PgPool;

use super::client::{names, open, open_before_next_page};
use super::{settle_in, wait_for_lock_waiter};
use crate::support::Api;

/// Terminates sessions that wait for a lock, one after the other.
async fn terminate_lock_waiters(api: &Api, times: usize) {
    let terminate = "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
    for _ in 0..times {
        wait_for_lock_waiter(api).await;
        sqlx::query(terminate).execute(&api.pool).await.unwrap();
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r35_the_poll_for_payment_updates_survives_lost_database_connections(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let mut stream = open(&api, &id, None).await;
    stream.take(1).await;
    let mut tx = api.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE timeline").execute(&mut *tx).await.unwrap();
    terminate_lock_waiters(&api, 2).await;
    settle_in(tx, &id).await;
    assert_eq!(names(&stream.rest().await), ["settled", "end"]);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r35_an_event_stream_survives_lost_database_connections(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, stream) = open_before_next_page(&api).await;
    let mut tx = api.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE payments").execute(&mut *tx).await.unwrap();
    let terminating = async {
        // More often than it would read without retries: for the next page, and for the first update.
        terminate_lock_waiters(&api, 3).await;
        settle_in(tx, &id).await;
    };
    let (rest, ()) = tokio::join!(stream.rest(), terminating);
    assert_eq!(names(&rest), ["settled", "end"]);
}
