//! The ways in which a request is carried out once. Each is written as well as it can be.

use std::sync::Arc;

use idempotency::{BatchOptions, Batcher, IdempotencyOptions, RequestOutcome, StoreBreaker};
use redis::AsyncCommands as _;
use redis::aio::ConnectionManager;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::orders::{self, Order, Orders};

/// How long a cache keeps an answer, in seconds.
const CACHE_TTL_S: u64 = 86_400;
/// How long a claim in a cache lives, in seconds.
const CACHE_LEASE_S: u64 = 30;

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The order alone. A repeat makes another.
    NoLayer,
    /// One transaction for each request: the key and its answer in one insert, the order in another.
    Plain,
    /// A claim in Redis, the order in PostgreSQL, the answer in Redis. A crash between the two forgets or doubles.
    CacheFirst,
    /// Redis asked first, and told afterwards; PostgreSQL, the plain way, has the last word.
    Hybrid,
    /// Claim, order and answer in one transaction, shared by whoever comes at the same moment.
    Ours,
}

impl Way {
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
pub(crate) struct Said {
    pub(crate) body: Vec<u8>,
    pub(crate) replayed: bool,
}

/// What all ways use.
#[derive(Clone)]
pub(crate) struct Ways {
    pub(crate) pool: PgPool,
    redis: ConnectionManager,
    pub(crate) batcher: Batcher<Orders>,
}

impl Ways {
    pub(crate) async fn new(pool: PgPool, redis_url: &str, workers: Option<usize>) -> anyhow::Result<Self> {
        let redis = ConnectionManager::new(redis::Client::open(redis_url)?).await?;
        let width = BatchOptions::default();
        let width = BatchOptions { workers: workers.unwrap_or(width.workers), ..width };
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

    pub(crate) async fn carry_out(&self, way: Way, order: &Order) -> anyhow::Result<Said> {
        match way {
            Way::NoLayer => {
                orders::write(&mut *self.pool.acquire().await?, order).await?;
                Ok(first(order))
            }
            Way::Plain => self.plain(order).await,
            Way::CacheFirst => self.cache_first(order).await,
            Way::Hybrid => self.hybrid(order).await,
            Way::Ours => {
                let said = self.batcher.execute(&order.scope(), &order.fingerprint(), order.clone()).await?;
                match said {
                    RequestOutcome::Executed(answer) => Ok(Said { body: answer.body, replayed: false }),
                    RequestOutcome::Replayed(answer) => Ok(Said { body: answer.body, replayed: true }),
                    // Many callers replay few keys at the same moment: the twin is told to come back.
                    RequestOutcome::InProgress => Ok(Said { body: Vec::new(), replayed: true }),
                    RequestOutcome::Mismatch => anyhow::bail!("another body"),
                    RequestOutcome::Refused(never) => match never {},
                }
            }
        }
    }

    async fn plain(&self, order: &Order) -> anyhow::Result<Said> {
        let mut tx = self.pool.begin().await?;
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
            return Ok(Said { body, replayed: true });
        }
        orders::write(&mut tx, order).await?;
        tx.commit().await?;
        Ok(first(order))
    }

    async fn cache_first(&self, order: &Order) -> anyhow::Result<Said> {
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
            return Ok(Said { body: redis.get(order.key.as_str()).await?, replayed: true });
        }
        orders::write(&mut *self.pool.acquire().await?, order).await?;
        redis.set_ex::<_, _, ()>(order.key.as_str(), order.answer(), CACHE_TTL_S).await?;
        Ok(first(order))
    }

    async fn hybrid(&self, order: &Order) -> anyhow::Result<Said> {
        let mut redis = self.redis.clone();
        if let Some(body) = redis.get::<_, Option<Vec<u8>>>(order.key.as_str()).await? {
            return Ok(Said { body, replayed: true });
        }
        let said = self.plain(order).await?;
        redis.set_ex::<_, _, ()>(order.key.as_str(), &said.body, CACHE_TTL_S).await?;
        Ok(said)
    }
}

fn first(order: &Order) -> Said {
    Said { body: order.answer(), replayed: false }
}
