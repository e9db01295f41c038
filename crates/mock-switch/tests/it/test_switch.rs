//! A running switch, a client for it, and a bank that receives its callbacks.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use mock_switch::{Config, RunningSwitch};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio_util::sync::CancellationToken;
use webhook_signature::Secret;

/// Longest wait for an asynchronous effect.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// A received callback with a valid signature.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedCallback {
    pub(crate) id: String,
    pub(crate) body: Value,
}

/// The bank: verifies signatures, records callbacks, and answers with the configured statuses.
#[derive(Clone, Default)]
pub(crate) struct Bank {
    received: Arc<Mutex<Vec<ReceivedCallback>>>,
    /// Statuses of the next responses; then 200.
    answers: Arc<Mutex<Vec<u16>>>,
}

impl Bank {
    pub(crate) fn received(&self) -> Vec<ReceivedCallback> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn answer_next(&self, statuses: &[u16]) {
        *self.answers.lock().unwrap() = statuses.to_vec();
    }

    /// Waits for this many callbacks.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<ReceivedCallback> {
        eventually("callbacks", || async { Some(self.received()).filter(|received| received.len() >= count) })
            .await
    }

    /// Serves on a free port; returns the callback URL.
    pub(crate) async fn start(&self) -> String {
        let router = axum::Router::new().route("/callbacks", post(receive)).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}/callbacks")
    }
}

async fn receive(State(bank): State<Bank>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let secret: Secret = Config::default().callback_secret;
    let now_s = jiff::Timestamp::now().as_second();
    let Ok(id) = webhook_signature::verify(&[secret], &headers, &body, now_s, 60) else {
        return StatusCode::UNAUTHORIZED;
    };
    let body = serde_json::from_slice(&body).unwrap();
    bank.received.lock().unwrap().push(ReceivedCallback { id, body });
    let mut answers = bank.answers.lock().unwrap();
    let status = if answers.is_empty() { 200 } else { answers.remove(0) };
    StatusCode::from_u16(status).unwrap()
}

/// Polls until `check` returns a value; fails after the timeout.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, check: impl Fn() -> F) -> T {
    let value = tokio::time::timeout(TIMEOUT, async {
        loop {
            if let Some(value) = check().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    value.await.unwrap_or_else(|_| panic!("expected {what} within {TIMEOUT:?}"))
}

/// A client for plain HTTP on this machine.
pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

/// A switch, its client and its bank.
pub(crate) struct TestSwitch {
    base: String,
    client: reqwest::Client,
    pub(crate) bank: Bank,
    stop: CancellationToken,
    running: RunningSwitch,
}

impl TestSwitch {
    /// Transfers are held and sandbox amounts are off: nothing happens without a command of the test.
    pub(crate) async fn start(options: PgPoolOptions, connect: PgConnectOptions) -> Self {
        Self::with(options, connect, |_| {}).await
    }

    /// A running switch with a configuration changed by the test.
    pub(crate) async fn with(
        options: PgPoolOptions,
        connect: PgConnectOptions,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        // The harness shares one bounded pool among all tests.
        drop(options);
        let pool = PgPoolOptions::new().max_connections(16).connect_with(connect).await.unwrap();
        let bank = Bank::default();
        let mut config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            callback_url: bank.start().await,
            settle_after_ms: 3_600_000,
            sandbox_amounts: false,
            ..Config::default()
        };
        change(&mut config);
        Self::on(pool, config, bank).await
    }

    async fn on(pool: PgPool, config: Config, bank: Bank) -> Self {
        let stop = CancellationToken::new();
        let metrics = service_kit::metrics::install().unwrap();
        let running = mock_switch::start(config, pool, metrics, stop.clone()).await.unwrap();
        let base = format!("http://{}", running.address());
        let client = client();
        Self { base, client, bank, stop, running }
    }

    /// Shuts the switch down. Every test ends with it, because its database cannot be dropped before.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        // The shutdown would wait for the client's idle connections.
        drop(self.client);
        self.running.finished().await.unwrap();
    }

    /// One request with the token; an error means that the connection closed without a response.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Value>,
    ) -> reqwest::Result<Response> {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.base))
            .header("authorization", "Bearer demo-switch-token");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        request.send().await
    }

    pub(crate) async fn try_submit(&self, order: Value) -> reqwest::Result<Response> {
        self.send(Method::POST, "/v1/transfers", None, Some(order)).await
    }

    pub(crate) async fn submit(&self, order: Value) -> (u16, Value) {
        read(self.try_submit(order).await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        read(self.send(Method::GET, path, None, None).await.unwrap()).await
    }

    /// A POST without a key or a body.
    pub(crate) async fn post(&self, path: &str) -> (u16, Value) {
        read(self.send(Method::POST, path, None, None).await.unwrap()).await
    }

    pub(crate) async fn query(&self, reference: &str) -> (u16, Value) {
        self.get(&format!("/v1/transfers/{reference}")).await
    }

    pub(crate) async fn cancel(&self, reference: &str, key: &str) -> (u16, Value) {
        let path = format!("/v1/transfers/{reference}/cancel");
        read(self.send(Method::POST, &path, Some(key), None).await.unwrap()).await
    }

    pub(crate) async fn recall(&self, reference: &str, key: &str) -> (u16, Value) {
        let path = format!("/v1/transfers/{reference}/recall");
        read(self.send(Method::POST, &path, Some(key), None).await.unwrap()).await
    }

    /// An admin request that must succeed.
    pub(crate) async fn admin(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let response = self.send(method, &format!("/admin/{path}"), None, body).await.unwrap();
        let (status, value) = read(response).await;
        assert!((200..300).contains(&status), "{path}: {status} {value}");
        value
    }

    pub(crate) async fn set_behaviour(&self, reference: &str, behaviour: Value) {
        self.admin(Method::PUT, &format!("behaviours/{reference}"), Some(behaviour)).await;
    }

    pub(crate) async fn set_shape(&self, shape: Value) {
        self.admin(Method::PUT, "shape", Some(shape)).await;
    }

    pub(crate) async fn book(&self, reference: &str) -> Value {
        self.admin(Method::GET, &format!("book/{reference}"), None).await
    }

    /// Waits until the transfer has this status.
    pub(crate) async fn wait_for_status(&self, reference: &str, status: &str) {
        eventually(status, || async { (self.query(reference).await.1["status"] == status).then_some(()) })
            .await;
    }
}

/// Status and JSON body; null without a body.
pub(crate) async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let bytes = response.bytes().await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// An order of 12.50 EUR.
pub(crate) fn order(reference: &str) -> Value {
    json!({
        "reference": reference,
        "amount_minor": 1250,
        "currency": "EUR",
        "creditor_account": "DE02120300000000202051",
    })
}

/// An order with some fields changed.
pub(crate) fn order_with(reference: &str, changes: Value) -> Value {
    let mut order = order(reference);
    for (name, value) in changes.as_object().unwrap() {
        order[name] = value.clone();
    }
    order
}
