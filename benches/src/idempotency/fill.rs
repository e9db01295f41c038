//! Many live keys, in our table and in the plain one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::PgPool;

use super::orders::Order;
use super::ways::{Way, Ways};

/// Rows of one statement.
const CHUNK: i64 = 250_000;

/// Brings both tables to `live_keys` rows or more.
pub(crate) async fn to(pool: &PgPool, live_keys: u64) -> anyhow::Result<()> {
    let wanted = i64::try_from(live_keys)?;
    for (table, columns, values) in [
        (
            "idempotency_keys",
            "scope_id, tenant, client, key, request_hash, claim_token, completed_at, response_status, response_body, expires_at, schema_version",
            "gen_random_uuid(), 'tenant', 'client', gen_random_uuid()::text, sha256(n::text::bytea), gen_random_uuid(), now(), 201, $1, now() + interval '24 hours', 2",
        ),
        (
            "plain_keys",
            "tenant, client, key, request_hash, response_status, response_body, expires_at",
            "'tenant', 'client', gen_random_uuid()::text, sha256(n::text::bytea), 201, $1, now() + interval '24 hours'",
        ),
    ] {
        let there: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
            .fetch_one(pool)
            .await?;
        let mut missing = wanted - there;
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
    // What was written in bulk is not to be written out while others are measured.
    sqlx::raw_sql("CHECKPOINT").execute(pool).await?;
    Ok(())
}

/// Bytes of one kept key, with its share of the indexes.
pub(crate) async fn row_bytes(pool: &PgPool) -> anyhow::Result<f64> {
    Ok(sqlx::query_scalar(
        "SELECT (SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'idempotency_keys'::regclass)::float8
              / (SELECT count(*) FROM idempotency_keys)::float8",
    )
    .fetch_one(pool)
    .await?)
}

/// Keys that are kept, handed out in turn.
#[derive(Clone)]
pub(crate) struct Kept {
    orders: Arc<Vec<Order>>,
    next: Arc<AtomicUsize>,
}

impl Kept {
    pub(crate) fn one(&self) -> Order {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.orders.len().max(1);
        self.orders.get(at).cloned().unwrap_or_else(Order::new)
    }
}

/// Carries out so many orders whose keys can then be replayed.
pub(crate) async fn some_keys(ways: &Ways, count: usize) -> anyhow::Result<Kept> {
    let orders: Vec<Order> = (0..count).map(|_| Order::new()).collect();
    for said in futures::future::join_all(orders.iter().map(|order| ways.carry_out(Way::Ours, order))).await {
        anyhow::ensure!(!said?.replayed, "a new key was known");
    }
    Ok(Kept { orders: Arc::new(orders), next: Arc::default() })
}
