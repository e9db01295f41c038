//! `GET /api/v1/payments/{payment_id}/events`: every timeline entry once and in order, from any position; number, life and cost of
//! streams.

mod client;
mod connections;
mod delivery;
mod failures;
mod limits;
mod resumption;

use std::time::Duration;

use sqlx::PgTransaction;
use tokio::time::timeout;

use crate::support::Api;

/// Longest wait of any step.
const LONG: Duration = Duration::from_secs(20);
/// Pause between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

const INTERNAL: bool = true;

/// Inserts a timeline entry; clients do not see internal ones.
async fn insert_entry(db: impl sqlx::PgExecutor<'_>, id: &str, state: &str, detail: &str, is_internal: bool) {
    sqlx::query("INSERT INTO timeline (payment_id, state, detail, is_internal) VALUES ($1, $2, $3, $4)")
        .bind(id)
        .bind(state)
        .bind(detail)
        .bind(is_internal)
        .execute(db)
        .await
        .unwrap();
}

/// Inserts a public entry in its own transaction.
async fn add_entry(api: &Api, id: &str, state: &str) {
    insert_entry(&api.pool, id, state, &format!("state {state}"), !INTERNAL).await;
}

/// Settles the payment and inserts its last entry, in one transaction as the ledger does.
async fn settle(api: &Api, id: &str) {
    settle_in(api.pool.begin().await.unwrap(), id).await;
}

async fn settle_in(mut tx: PgTransaction<'_>, id: &str) {
    insert_entry(&mut *tx, id, "settled", "state settled", !INTERNAL).await;
    sqlx::query("UPDATE payments SET state = 'settled', ended_at = now() WHERE payment_id = $1")
        .bind(id)
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

/// Waits until a session waits for a lock.
async fn wait_for_lock_waiter(api: &Api) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND wait_event_type = 'Lock'";
    let waits = async {
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&api.pool).await.unwrap() == 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    timeout(LONG, waits).await.expect("no session waits for a lock");
}
