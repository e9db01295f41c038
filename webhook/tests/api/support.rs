//! A bank with two tenants behind the router, requests to it, and the rows that they store.

use std::collections::BTreeMap;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use jiff::Timestamp;
use payment_ledger::Ledger;
use payment_ledger::access::api_keys::{ApiKeyScope, Caller, NewKey, Scopes};
use payment_protocol::ids::{AccountId, ClientId, KeyId, TenantId};
use payment_protocol::money::{Money, parse_currency};
use payments_api::Config;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use webhook_signature::{ID_HEADER, SIGNATURE_HEADER, Secret, TIMESTAMP_HEADER};

pub(crate) const PAYMENTS: &str = "/api/v1/payments";
/// API key of tenant acme, client shop.
pub(crate) const ACME: &str = "test-key-of-acme";
/// A second API key of tenant acme's client shop, as during a rotation.
pub(crate) const ACME_ROTATED: &str = "test-key-of-acme-2";
/// API key of another client of tenant acme.
pub(crate) const ACME_TILL: &str = "test-key-of-acme-till";
/// API key of another tenant, globex.
pub(crate) const GLOBEX: &str = "test-key-of-globex";
/// The switch that serves DE, with an old and a new secret.
pub(crate) const NORTH: &str = "north";
/// The switch that serves FR.
pub(crate) const SOUTH: &str = "south";
pub(crate) const NORTH_SECRET: &str = "whsec_bm9ydGgtc2VjcmV0LW5vcnRoLXNlY3JldC1ub3J0aCE=";
pub(crate) const NORTH_SECRET_OLD: &str = "whsec_b2xkLW5vcnRoLXNlY3JldC1vbGQtbm9ydGgtc2VjcmU=";
pub(crate) const SOUTH_SECRET: &str = "whsec_c291dGgtc2VjcmV0LXNvdXRoLXNlY3JldC1zb3V0aCE=";
/// Amount limit of the switches, in minor units.
pub(crate) const LIMIT_MINOR: i64 = 1_000_000;

/// The service under test.
pub(crate) struct Api {
    pub(crate) router: Router,
    pub(crate) pool: PgPool,
    pub(crate) ledger: Ledger,
    pub(crate) stopping: CancellationToken,
}

/// A response, read to its end; of a stream only the head.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
    pub(crate) json: Value,
}

impl ApiResponse {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Asserts a problem document with this status and code.
    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, code: &str, case: &str) {
        assert_eq!(self.json["code"], code, "{case}: {self:?}");
        assert_eq!(self.status.as_u16(), status, "{case}: {self:?}");
        assert_eq!(self.json["status"], status, "{case}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{case}");
    }
}

impl Api {
    /// The service with default options over a migrated ledger, with accounts and API keys.
    pub(crate) async fn new(pool: PgPool) -> Self {
        idempotency::MIGRATOR.run(&pool).await.unwrap();
        let api = Self::with_options(pool, json!({}));
        let keys = [
            (ACME, "acme", "shop"),
            (ACME_ROTATED, "acme", "shop"),
            (ACME_TILL, "acme", "till"),
            (GLOBEX, "globex", "shop"),
        ];
        for (key, tenant, client) in keys {
            api.create_key(
                key,
                tenant,
                client,
                &[ApiKeyScope::Pay, ApiKeyScope::Read, ApiKeyScope::Webhooks],
            )
            .await;
        }
        for (tenant, account, code) in
            [("acme", "acme-eur", "EUR"), ("acme", "acme-jpy", "JPY"), ("globex", "globex-eur", "EUR")]
        {
            let (account, currency) = (AccountId::new(account).unwrap(), parse_currency(code).unwrap());
            api.ledger.open_account(&TenantId::new(tenant).unwrap(), &account, currency).await.unwrap();
            let money = Money::from_minor(100_000, currency).unwrap();
            api.ledger.fund(&account, money, &format!("fund:{account}")).await.unwrap();
        }
        api
    }

    /// Stores an API key and returns its id.
    pub(crate) async fn create_key(
        &self,
        key: &str,
        tenant: &str,
        client: &str,
        scopes: &[ApiKeyScope],
    ) -> KeyId {
        let hash = payments_api::key_hash(key);
        let hex: String = hash[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        let id = KeyId::new(format!("pk_{hex}")).unwrap();
        let caller =
            Caller { tenant: TenantId::new(tenant).unwrap(), client: ClientId::new(client).unwrap() };
        let scopes = Scopes::new(scopes.iter().copied()).unwrap();
        let new = NewKey {
            id: &id,
            hash: &hash,
            prefix: "test",
            caller: &caller,
            scopes: &scopes,
            lifetime_s: None,
        };
        self.ledger.insert_api_key(&new).await.unwrap();
        id
    }

    /// Another process over the same tables; `api` has the options of its section.
    pub(crate) fn with_options(pool: PgPool, api: Value) -> Self {
        Self::with_config(pool, config(api))
    }

    /// A process with its own configuration.
    pub(crate) fn with_config(pool: PgPool, config: Config) -> Self {
        Self::with_reads(pool.clone(), pool, config)
    }

    /// A process whose clients' reads have connections of their own.
    pub(crate) fn with_reads(pool: PgPool, reads: PgPool, config: Config) -> Self {
        let stopping = CancellationToken::new();
        service_kit::metrics::install().unwrap();
        let router =
            payments_api::router(config, pool.clone().into(), reads.into(), stopping.clone()).unwrap();
        Self { router, ledger: Ledger::new(pool.clone()), pool, stopping }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> ApiResponse {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        // A stream lives as long as its payment, so its body is dropped.
        let is_stream = parts.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let body = if is_stream { Body::empty() } else { body };
        let bytes = to_bytes(body, 1 << 24).await.unwrap().to_vec();
        let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        ApiResponse { status: parts.status, headers: parts.headers, bytes, json }
    }

    pub(crate) async fn get(&self, api_key: &str, path: &str) -> ApiResponse {
        let request = Request::get(path).header("authorization", format!("Bearer {api_key}"));
        self.send(request.body(Body::empty()).unwrap()).await
    }

    /// POST with a bearer key and an idempotency key.
    pub(crate) async fn post(&self, api_key: &str, path: &str, key: &str, body: &str) -> ApiResponse {
        self.send_keyed("POST", api_key, path, key, body).await
    }

    /// A request with a bearer key and an idempotency key.
    pub(crate) async fn send_keyed(
        &self,
        method: &str,
        api_key: &str,
        path: &str,
        key: &str,
        body: &str,
    ) -> ApiResponse {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {api_key}"))
            .header("idempotency-key", key)
            .header("content-type", "application/json");
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub(crate) async fn pay(&self, key: &str, body: &Value) -> ApiResponse {
        self.post(ACME, PAYMENTS, key, &body.to_string()).await
    }

    /// Creates a payment and returns its id and its transaction id.
    pub(crate) async fn accepted_payment(&self, key: &str) -> (String, String) {
        let response = self.pay(key, &order()).await;
        assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
        let text = |field: &str| response.json[field].as_str().unwrap().to_owned();
        (text("payment_id"), text("transaction_id"))
    }

    /// Ends a payment by SQL.
    pub(crate) async fn end_payment(&self, payment_id: &str, state: &str) {
        sqlx::query(
            "UPDATE payments SET state = $2, ended_at = now(), updated_at = now() WHERE payment_id = $1",
        )
        .bind(payment_id)
        .bind(state)
        .execute(&self.pool)
        .await
        .unwrap();
    }

    pub(crate) async fn callback(&self, switch: &str, signed: Signed) -> ApiResponse {
        self.send(signed.request(switch, Body::from(signed.body.clone()))).await
    }

    /// Row counts of every table that a request could write to.
    pub(crate) async fn row_counts(&self) -> BTreeMap<&'static str, i64> {
        let mut rows = BTreeMap::new();
        for table in [
            "payments",
            "timeline",
            "idempotency.keys",
            "inbox",
            "switch_callbacks",
            "exceptions",
            "alerts",
            "operations",
            "journal",
            "holds",
            "submissions",
        ] {
            let count = format!("SELECT count(*) FROM {table}");
            let count: i64 =
                sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&self.pool).await.unwrap();
            rows.insert(table, count);
        }
        rows
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        self.row_counts().await[table]
    }

    /// Kinds of the open exceptions, sorted.
    pub(crate) async fn exceptions(&self) -> Vec<String> {
        sqlx::query_scalar("SELECT kind FROM exceptions ORDER BY kind").fetch_all(&self.pool).await.unwrap()
    }
}

/// A callback with its headers.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) headers: BTreeMap<&'static str, String>,
    pub(crate) body: Vec<u8>,
}

impl Signed {
    /// The callback with this body instead of its own.
    pub(crate) fn request(&self, switch: &str, body: Body) -> Request<Body> {
        let mut request =
            Request::post(format!("/callbacks/{switch}")).header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(body).unwrap()
    }
}

/// A body that never arrives.
pub(crate) fn pending_body() -> Body {
    Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>())
}

/// A callback signed by a switch `age_s` seconds ago.
pub(crate) fn signed(secret: &str, event_id: &str, age_s: i64, body: impl Into<Vec<u8>>) -> Signed {
    let body = body.into();
    let timestamp_s = Timestamp::now().as_second() - age_s;
    let secret: Secret = secret.parse().unwrap();
    let signature = webhook_signature::sign(&secret, event_id, timestamp_s, &body);
    let headers = BTreeMap::from([
        (ID_HEADER, event_id.to_owned()),
        (TIMESTAMP_HEADER, timestamp_s.to_string()),
        (SIGNATURE_HEADER, signature),
    ]);
    Signed { headers, body }
}

/// The body of a callback for a transaction with the amount of [`order`].
pub(crate) fn report(tx_id: &str, status: &str) -> Value {
    json!({
        "type": "transfer.completed", "reference": format!("{tx_id}:submit"), "status": status,
        "amount_minor": 1_250, "currency": "EUR", "reason": null, "occurred_at": "2026-01-01T00:00:00Z",
    })
}

/// A valid order of acme.
pub(crate) fn order() -> Value {
    json!({"amount": "12.50", "currency": "EUR", "source_account": "acme-eur", "destination_account": "DE02120300"})
}

/// The order with one field changed, or removed if `value` is null.
pub(crate) fn order_with(field: &str, value: Value) -> Value {
    let mut order = order();
    let fields = order.as_object_mut().unwrap();
    if value.is_null() {
        fields.remove(field);
    } else {
        fields.insert(field.to_owned(), value);
    }
    order
}

/// The default configuration. No process listens on the port of Temporal.
pub(crate) fn config(api: Value) -> Config {
    serde_json::from_value(json!({
        "temporal": {"address": "http://127.0.0.1:1"},
        "api": api,
        "outbound_webhooks": {"master_key": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
        "switches": {
            NORTH: switch("DE", &[NORTH_SECRET, NORTH_SECRET_OLD]),
            SOUTH: switch("FR", &[SOUTH_SECRET]),
        },
    }))
    .unwrap()
}

/// The default configuration without the switch for DE.
pub(crate) fn config_without_north() -> Config {
    serde_json::from_value(json!({"switches": {SOUTH: switch("FR", &[SOUTH_SECRET])}})).unwrap()
}

pub(crate) fn switch(route: &str, secrets: &[&str]) -> Value {
    json!({
        "base_url": "http://127.0.0.1:1", "callback_secrets": secrets, "routes": [route],
        "profile": {
            "strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400,
            "tombstones": true, "honours_deadline": true, "max_skew_ms": 1_000, "can_cancel": true,
            "can_recall": true, "has_callback": true, "amount_limit_minor": LIMIT_MINOR,
        },
    })
}
