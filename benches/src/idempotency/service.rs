//! The same endpoint in every way, over HTTP.

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use bytes::Bytes;
use idempotency::canonical;
use idempotency::http::{self, IDEMPOTENCY_KEY, IdempotencyContext, IdempotencyLayer, Identify, KeyOwner};
use tokio::net::TcpListener;

use super::orders::Order;
use super::ways::{Way, Ways};

/// The endpoints, one for each way.
pub(crate) struct Services {
    url: String,
    client: reqwest::Client,
}

/// One endpoint.
#[derive(Clone)]
pub(crate) struct Service {
    url: String,
    client: reqwest::Client,
}

#[derive(Clone)]
struct Everybody;

impl Identify for Everybody {
    async fn identify(&self, _: &mut Parts) -> Result<KeyOwner, Response> {
        Ok(KeyOwner { tenant: "tenant".into(), client: "client".into() })
    }
}

pub(crate) async fn start(ways: &Ways) -> anyhow::Result<Services> {
    let ours = Router::new().route("/ours", post(with_layer)).layer(IdempotencyLayer::new(Everybody));
    let mut router = ours;
    for (n, way) in Way::ALL.iter().enumerate().filter(|(_, way)| **way != Way::Ours) {
        let way = *way;
        let handler =
            move |State(ways): State<Ways>, headers: HeaderMap, body: Bytes| bare(ways, way, headers, body);
        router = router.route(&format!("/{n}"), post(handler));
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let router = router.with_state(ways.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().build().context("no HTTP client")?;
    Ok(Services { url, client })
}

impl Services {
    pub(crate) fn of(&self, way: Way) -> anyhow::Result<Service> {
        let n = Way::ALL.iter().position(|one| *one == way).context("no such way")?;
        let path = if way == Way::Ours { "ours".to_owned() } else { n.to_string() };
        Ok(Service { url: format!("{}/{path}", self.url), client: self.client.clone() })
    }
}

impl Service {
    /// One order, which must be answered 201.
    pub(crate) async fn post(self) -> anyhow::Result<()> {
        let order = Order::new();
        let request =
            self.client.post(&self.url).header(IDEMPOTENCY_KEY, order.key.as_str()).body(order.body);
        let response = request.send().await?;
        anyhow::ensure!(response.status() == 201, "{}", response.status());
        response.bytes().await?;
        Ok(())
    }
}

async fn with_layer(State(ways): State<Ways>, ticket: IdempotencyContext, body: Bytes) -> Response {
    let Ok(canonical) = canonical::json(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let fingerprint = ticket.fingerprint(&canonical);
    let order = Order::under(ticket.key().as_str());
    match ways.batcher.execute(&ticket.scope(), &fingerprint, order).await.map(http::response) {
        Ok(Ok(answer)) => answer,
        _ => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn bare(ways: Ways, way: Way, headers: HeaderMap, body: Bytes) -> Response {
    // Whoever has a layer reads the body for its fingerprint; without one it is parsed all the same.
    let key = headers.get(IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
    if canonical::json(&body).is_err() || key.is_empty() {
        return StatusCode::BAD_REQUEST.into_response();
    }
    match ways.carry_out(way, &Order::under(key)).await {
        Ok(said) => (StatusCode::CREATED, said.body).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
