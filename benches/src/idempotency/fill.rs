//! Fills our table and the plain table with live keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::PgPool;

use super::orders::Order;
use super::variants::{LayerVariant, Variants};

/// Rows inserted per statement.
const CHUNK: i64 = 250_000;

/// Fills both tables to at least `live_keys` rows.
pub(crate) async fn fill_to(pool: &PgPool, live_keys: u64) -> anyhow::Result<()> {
    let target = i64::try_from(live_keys)?;
    for (table, columns, values) in [
        (
            "idempotency.keys",
            "scope_id, tenant, client, key, request_hash, claim_token, completed_at, response_status, response_body, expires_at, schema_version",
            "gen_random_uuid(), 'tenant', 'client', gen_random_uuid()::text, sha256(n::text::bytea), gen_random_uuid(), now(), 201, $1, now() + interval '24 hours', 2",
        ),
        (
            "plain_keys",
            "tenant, client, key, request_hash, response_status, response_body, expires_at",
            "'tenant', 'client', gen_random_uuid()::text, sha256(n::text::bytea), 201, $1, now() + interval '24 hours'",
        ),
    ] {
        let existing: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
            .fetch_one(pool)
            .await?;
        let mut missing = target - existing;
        while missing > 0 {
            let sql =
                format!("INSERT INTO {table} ({columns}) SELECT {values} FROM generate_series(1, $2) AS n");
            sqlx::query(sqlx::AssertSqlSafe(sql))
                .bind(Order::new().answer())
                .bind(missing.min(CHUNK))
                .execute(pool)
                .await?;
            missing -= CHUNK;
        }
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("VACUUM (ANALYZE) {table}"))).execute(pool).await?;
    }
    // Write the new pages now, not during the measurements.
    sqlx::raw_sql("CHECKPOINT").execute(pool).await?;
    Ok(())
}

/// Bytes per stored key, including the indexes.
pub(crate) async fn row_bytes(pool: &PgPool) -> anyhow::Result<f64> {
    Ok(sqlx::query_scalar(
        "SELECT (SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'idempotency.keys'::regclass)::float8
              / (SELECT count(*) FROM idempotency.keys)::float8",
    )
    .fetch_one(pool)
    .await?)
}

/// Orders with stored keys, returned in turn.
#[derive(Clone)]
pub(crate) struct StoredOrders {
    orders: Arc<Vec<Order>>,
    next: Arc<AtomicUsize>,
}

impl StoredOrders {
    pub(crate) fn next(&self) -> Order {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.orders.len().max(1);
        self.orders.get(index).cloned().unwrap_or_else(Order::new)
    }
}

/// Executes `count` orders, whose keys can then be replayed.
pub(crate) async fn store_orders(variants: &Variants, count: usize) -> anyhow::Result<StoredOrders> {
    let orders: Vec<Order> = (0..count).map(|_| Order::new()).collect();
    let executed = orders.iter().map(|order| variants.execute(LayerVariant::Ours, order));
    for response in futures::future::join_all(executed).await {
        anyhow::ensure!(!response?.replayed, "a new key was replayed");
    }
    Ok(StoredOrders { orders: Arc::new(orders), next: Arc::default() })
}
