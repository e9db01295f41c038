//! The variants that execute a request once. Each baseline is implemented as efficiently as it can be.

use std::sync::Arc;

use idempotency::{BatchOptions, Batcher, IdempotencyOptions, RequestOutcome, StoreBreaker};
use postgres_kit::Pool;
use redis::AsyncCommands as _;
use redis::aio::ConnectionManager;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::orders::{self, Order, Orders};

/// Lifetime of an answer in the cache, in seconds.
const CACHE_TTL_S: u64 = 86_400;
/// Lifetime of a claim in the cache, in seconds.
const CACHE_LEASE_S: u64 = 30;

/// A variant of the idempotency layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerVariant {
    /// Inserts the order only. A repeat inserts another order.
    NoLayer,
    /// One transaction per request: one insert for the key with its answer, one for the order.
    Plain,
    /// Claim and answer in Redis, the order in PostgreSQL. A crash between them loses or duplicates the order.
    CacheFirst,
    /// As [`LayerVariant::Plain`], with answers cached in Redis.
    Hybrid,
    /// Claim, order and answer in one transaction, shared by concurrent requests.
    Ours,
}

impl LayerVariant {
    pub(crate) const ALL: [Self; 5] =
        [Self::NoLayer, Self::Plain, Self::CacheFirst, Self::Hybrid, Self::Ours];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NoLayer => "no layer",
            Self::Plain => "plain",
            Self::CacheFirst => "cache first",
            Self::Hybrid => "hybrid",
            Self::Ours => "ours",
        }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct OrderResponse {
    pub(crate) body: Vec<u8>,
    pub(crate) replayed: bool,
}

/// The resources of all variants.
#[derive(Clone)]
pub(crate) struct Variants {
    pub(crate) pool: PgPool,
    redis: ConnectionManager,
    pub(crate) batcher: Batcher<Orders>,
}

impl Variants {
    pub(crate) async fn new(
        pool: PgPool,
        redis_url: &str,
        batch_workers: Option<usize>,
    ) -> anyhow::Result<Self> {
        let redis = ConnectionManager::new(redis::Client::open(redis_url)?).await?;
        let width = BatchOptions::default();
        let width = BatchOptions { workers: batch_workers.unwrap_or(width.workers), ..width };
        let batcher = Batcher::start(
            Orders,
            pool.clone(),
            IdempotencyOptions::default(),
            width,
            Arc::new(StoreBreaker::default()),
            &CancellationToken::new(),
        );
        Ok(Self { pool, redis, batcher })
    }

    pub(crate) async fn execute(
        &self,
        variant: LayerVariant,
        order: &Order,
    ) -> anyhow::Result<OrderResponse> {
        match variant {
            LayerVariant::NoLayer => {
                orders::insert(&mut Pool::from(self.pool.clone()).acquire().await?, order).await?;
                Ok(first_response(order))
            }
            LayerVariant::Plain => self.plain(order).await,
            LayerVariant::CacheFirst => self.cache_first(order).await,
            LayerVariant::Hybrid => self.hybrid(order).await,
            LayerVariant::Ours => {
                let outcome =
                    self.batcher.execute(&order.scope(), &order.fingerprint(), order.clone()).await?;
                match outcome {
                    RequestOutcome::Executed(answer) => {
                        Ok(OrderResponse { body: answer.body, replayed: false })
                    }
                    RequestOutcome::Replayed(answer) => {
                        Ok(OrderResponse { body: answer.body, replayed: true })
                    }
                    // Many callers replay few keys concurrently: one of them is answered that the key is in progress.
                    RequestOutcome::InProgress => Ok(OrderResponse { body: Vec::new(), replayed: true }),
                    RequestOutcome::Mismatch => anyhow::bail!("the key was used with another body"),
                    RequestOutcome::Refused(never) => match never {},
                }
            }
        }
    }

    async fn plain(&self, order: &Order) -> anyhow::Result<OrderResponse> {
        let mut tx = Pool::from(self.pool.clone()).begin().await?;
        let claimed = sqlx::query(
            "INSERT INTO plain_keys (tenant, client, key, request_hash, response_status, response_body, expires_at)
             VALUES ($1, $2, $3, $4, 201, $5, now() + interval '24 hours') ON CONFLICT DO NOTHING",
        )
        .bind(order.scope().tenant)
        .bind(order.scope().client)
        .bind(order.key.as_str())
        .bind(order.fingerprint().as_bytes().as_slice())
        .bind(order.answer())
        .execute(&mut *tx)
        .await?;
        if claimed.rows_affected() == 0 {
            let body = sqlx::query_scalar(
                "SELECT response_body FROM plain_keys WHERE tenant = $1 AND client = $2 AND key = $3",
            )
            .bind(order.scope().tenant)
            .bind(order.scope().client)
            .bind(order.key.as_str())
            .fetch_one(&mut *tx)
            .await?;
            return Ok(OrderResponse { body, replayed: true });
        }
        orders::insert(&mut tx, order).await?;
        tx.commit().await?;
        Ok(first_response(order))
    }

    async fn cache_first(&self, order: &Order) -> anyhow::Result<OrderResponse> {
        let mut redis = self.redis.clone();
        let claimed: Option<String> = redis::cmd("SET")
            .arg(order.key.as_str())
            .arg("")
            .arg("NX")
            .arg("EX")
            .arg(CACHE_LEASE_S)
            .query_async(&mut redis)
            .await?;
        if claimed.is_none() {
            return Ok(OrderResponse { body: redis.get(order.key.as_str()).await?, replayed: true });
        }
        orders::insert(&mut Pool::from(self.pool.clone()).acquire().await?, order).await?;
        redis.set_ex::<_, _, ()>(order.key.as_str(), order.answer(), CACHE_TTL_S).await?;
        Ok(first_response(order))
    }

    async fn hybrid(&self, order: &Order) -> anyhow::Result<OrderResponse> {
        let mut redis = self.redis.clone();
        if let Some(body) = redis.get::<_, Option<Vec<u8>>>(order.key.as_str()).await? {
            return Ok(OrderResponse { body, replayed: true });
        }
        let response = self.plain(order).await?;
        redis.set_ex::<_, _, ()>(order.key.as_str(), &response.body, CACHE_TTL_S).await?;
        Ok(response)
    }
}

fn first_response(order: &Order) -> OrderResponse {
    OrderResponse { body: order.answer(), replayed: false }
}
