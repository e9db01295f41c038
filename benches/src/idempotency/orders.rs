//! The effect of every variant: one row of an order, and an answer of the size of a payment's.

use idempotency::{BatchEffect, EffectOutcome, Fingerprint, IdempotencyKey, KeyScope, StoredResponse};
use jiff::Timestamp;
use postgres_kit::Connection;
use sqlx::PgPool;
use uuid::Uuid;

/// An order under its key.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) key: IdempotencyKey,
    pub(crate) body: String,
}

impl Order {
    /// An order with a new key.
    pub(crate) fn new() -> Self {
        Self::with_key(&Uuid::new_v4().to_string())
    }

    /// An order with this key, which must be a valid idempotency key.
    pub(crate) fn with_key(key: &str) -> Self {
        let key =
            IdempotencyKey::parse(key.as_bytes()).unwrap_or_else(|_| unreachable!("a UUID is a valid key"));
        let body = format!(
            r#"{{"amount":"12.50","currency":"EUR","destination_account":"DE0212030000000020{key}"}}"#
        );
        Self { key, body }
    }

    pub(crate) fn scope(&self) -> KeyScope<'_> {
        KeyScope { tenant: "tenant", client: "client", key: &self.key }
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("tenant", "POST", "/orders", self.body.as_bytes())
    }

    /// The answer, of the size of a payment's acceptance.
    pub(crate) fn answer(&self) -> Vec<u8> {
        let Self { key, .. } = self;
        format!(
            r#"{{"payment_id":"pay_{key}","transaction_id":"tx_{key}","status":"accepted","amount":"12.50","currency":"EUR","source_account":"account-of-the-payer","destination_account":"DE02120300000000202051","created_at":"2026-01-01T12:00:00.123456Z"}}"#
        )
        .into_bytes()
    }
}

/// Creates the tables of the baselines.
pub(crate) async fn create_tables(pool: &PgPool) -> anyhow::Result<()> {
    sqlx::raw_sql(
        "CREATE TABLE orders (key text NOT NULL, body text NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
         CREATE TABLE plain_keys (
             tenant text NOT NULL, client text NOT NULL, key text NOT NULL, request_hash bytea NOT NULL,
             response_status smallint NOT NULL, response_body bytea NOT NULL,
             created_at timestamptz NOT NULL DEFAULT now(), expires_at timestamptz NOT NULL,
             PRIMARY KEY (tenant, client, key));
         CREATE INDEX plain_keys_expiry ON plain_keys (expires_at);",
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Inserts orders in batches.
#[derive(Clone, Debug)]
pub(crate) struct Orders;

impl BatchEffect for Orders {
    type Request = Order;
    type Refusal = std::convert::Infallible;
    type Error = sqlx::Error;

    async fn apply(
        &self,
        tx: &mut Connection,
        _: Timestamp,
        orders: &[&Order],
    ) -> Result<Vec<EffectOutcome<Self::Refusal>>, sqlx::Error> {
        sqlx::query("INSERT INTO orders (key, body) SELECT * FROM unnest($1::text[], $2::text[])")
            .bind(orders.iter().map(|order| order.key.as_str()).collect::<Vec<_>>())
            .bind(orders.iter().map(|order| order.body.as_str()).collect::<Vec<_>>())
            .execute(tx)
            .await?;
        Ok(orders
            .iter()
            .map(|order| EffectOutcome::Applied(StoredResponse::new(201, order.answer())))
            .collect())
    }
}

/// Inserts one order.
pub(crate) async fn insert(connection: &mut Connection, order: &Order) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO orders (key, body) VALUES ($1, $2)")
        .bind(order.key.as_str())
        .bind(&order.body)
        .execute(connection)
        .await?;
    Ok(())
}
