//! The naive client: wrong on purpose. It sends an order to the switch without an idempotency key, and charges the account for
//! each SUCCESS. The playground runs it beside the service; the product has no part of it.
//!
//! A file for each order holds `open`, `settled` or `failed`. What the client does not know, it does again: a transfer without an
//! answer, an order that it finds open after a restart, a FAILURE, the end of the SLA. After three sends it says `failed`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

/// Sends of one order.
const SENDS_MAX: u32 = 3;
/// How long the client waits for the switch's answer.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long it waits for the confirmation.
const SLA: Duration = Duration::from_secs(5);
/// Pause between two looks at an order's file.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Environment variables `NAIVE_CLIENT_KEY`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Where orders and callbacks arrive.
    listen: SocketAddr,
    /// Folder of the orders; other instances share it.
    orders: PathBuf,
    /// URL of the switch, and of the account.
    peers: String,
    /// The switch's token.
    api_token: String,
}

struct Client {
    config: Config,
    http: reqwest::Client,
}

#[derive(Deserialize)]
struct Order {
    order: String,
    amount_minor: i64,
}

#[derive(Deserialize)]
struct Callback {
    reference: String,
    status: String,
    amount_minor: i64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    service_kit::telemetry::init("naive-client");
    let config: Config = service_kit::config::load("NAIVE_CLIENT", "NAIVE_CLIENT_CONFIG")?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().timeout(ATTEMPT_TIMEOUT).build()?;
    let listen = config.listen;
    let client = Arc::new(Client { config, http });
    for order in client.open_orders()? {
        tokio::spawn(Arc::clone(&client).carry(order));
    }
    let router = Router::new()
        .route("/orders", post(take))
        .route("/callbacks/mock", post(callback))
        .route("/ready", get(|| async { "ok" }))
        .with_state(client);
    service_kit::serve::serve(listen, "NAIVE_CLIENT_LISTEN", router, service_kit::shutdown::on_signals())
        .await
}

/// `POST /orders`
async fn take(State(client): State<Arc<Client>>, Json(order): Json<Order>) -> Result<StatusCode, StatusCode> {
    client.write(&order.order, &format!("open {}", order.amount_minor)).map_err(internal)?;
    tokio::spawn(client.carry(order));
    Ok(StatusCode::ACCEPTED)
}

/// `POST /callbacks/mock`. It verifies nothing.
async fn callback(
    State(client): State<Arc<Client>>,
    Json(callback): Json<Callback>,
) -> Result<StatusCode, StatusCode> {
    let order = callback.reference.split('.').next().unwrap_or_default().to_owned();
    if callback.status == "SUCCESS" {
        tokio::spawn(async move {
            if let Err(error) = client.charge(&order, callback.amount_minor).await {
                tracing::warn!(
                    error = &*error as &dyn std::error::Error,
                    "the naive client could not charge"
                );
            }
        });
    } else {
        client.write(&format!("{order}.failure"), "").map_err(internal)?;
    }
    Ok(StatusCode::OK)
}

fn internal(error: anyhow::Error) -> StatusCode {
    tracing::warn!(error = &*error as &dyn std::error::Error, "the naive client could not write its file");
    StatusCode::INTERNAL_SERVER_ERROR
}

impl Client {
    /// Carries an order to its end.
    async fn carry(self: Arc<Self>, order: Order) {
        for _ in 0..SENDS_MAX {
            if !self.is_open(&order.order) {
                return;
            }
            match self.send(&order).await {
                Some(202) => self.wait(&order.order).await,
                Some(_) => break,
                None => {}
            }
        }
        if self.is_open(&order.order)
            && let Err(error) = self.write(&order.order, "failed")
        {
            tracing::warn!(
                error = &*error as &dyn std::error::Error,
                "the naive client could not write its file"
            );
        }
    }

    /// Sends a transfer under a new reference; `None` if there is no answer.
    async fn send(&self, order: &Order) -> Option<u16> {
        let body = json!({
            "reference": format!("{}.{}", order.order, Uuid::new_v4().simple()),
            "amount_minor": order.amount_minor, "currency": "USD", "creditor_account": "XX-SHOP",
        });
        let request =
            self.http.post(format!("{}/v1/transfers", self.config.peers)).bearer_auth(&self.config.api_token);
        Some(request.json(&body).send().await.ok()?.status().as_u16())
    }

    /// Waits for the end of the order, a FAILURE or the end of the SLA.
    async fn wait(&self, order: &str) {
        let until = Instant::now() + SLA;
        let failure = self.path(&format!("{order}.failure"));
        while self.is_open(order) && Instant::now() < until && std::fs::remove_file(&failure).is_err() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Charges the account, and answers the customer that the order is settled.
    async fn charge(&self, order: &str, amount_minor: i64) -> anyhow::Result<()> {
        let body: Value = json!({"order": order, "amount_minor": amount_minor});
        let charged = self.http.post(format!("{}/charges", self.config.peers)).json(&body).send().await;
        // A frozen account answers 409; the client does not look.
        charged.context("the account does not answer")?;
        if self.is_open(order) { self.write(order, "settled") } else { Ok(()) }
    }

    fn is_open(&self, order: &str) -> bool {
        std::fs::read_to_string(self.path(order)).is_ok_and(|text| text.starts_with("open"))
    }

    /// The orders that an earlier process, or another one, has not ended.
    fn open_orders(&self) -> anyhow::Result<Vec<Order>> {
        let mut orders = Vec::new();
        for file in std::fs::read_dir(&self.config.orders)? {
            let file = file?;
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            if let Some(amount) = text.strip_prefix("open ") {
                let order = file.file_name().to_string_lossy().into_owned();
                orders.push(Order { order, amount_minor: amount.parse()? });
            }
        }
        Ok(orders)
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path(name);
        std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
    }

    fn path(&self, name: &str) -> PathBuf {
        // A name from a callback must not lead out of the folder.
        self.config.orders.join(Path::new(name).file_name().unwrap_or_default())
    }
}
