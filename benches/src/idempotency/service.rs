//! The same HTTP endpoint in every variant.

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
use super::variants::{LayerVariant, Variants};

/// The endpoints, one per variant.
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

/// Identifies every request as the same client.
#[derive(Clone)]
struct OneClient;

impl Identify for OneClient {
    async fn identify(&self, _: &mut Parts) -> Result<KeyOwner, Response> {
        Ok(KeyOwner { tenant: "tenant".into(), client: "client".into() })
    }
}

pub(crate) async fn start(variants: &Variants) -> anyhow::Result<Services> {
    let ours = Router::new().route("/ours", post(with_layer)).layer(IdempotencyLayer::new(OneClient));
    let mut router = ours;
    for (n, variant) in
        LayerVariant::ALL.iter().enumerate().filter(|(_, variant)| **variant != LayerVariant::Ours)
    {
        let variant = *variant;
        let handler = move |State(variants): State<Variants>, headers: HeaderMap, body: Bytes| {
            without_layer(variants, variant, headers, body)
        };
        router = router.route(&format!("/{n}"), post(handler));
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let router = router.with_state(variants.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().build().context("the HTTP client cannot be created")?;
    Ok(Services { url, client })
}

impl Services {
    pub(crate) fn of(&self, variant: LayerVariant) -> anyhow::Result<Service> {
        let n = LayerVariant::ALL.iter().position(|one| *one == variant).context("unknown variant")?;
        let path = if variant == LayerVariant::Ours { "ours".to_owned() } else { n.to_string() };
        Ok(Service { url: format!("{}/{path}", self.url), client: self.client.clone() })
    }
}

impl Service {
    /// Posts one order; any status but 201 is an error.
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

async fn with_layer(State(variants): State<Variants>, ticket: IdempotencyContext, body: Bytes) -> Response {
    let Ok(canonical) = canonical::json(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let fingerprint = ticket.fingerprint(&canonical);
    let order = Order::with_key(ticket.key().as_str());
    match variants.batcher.execute(&ticket.scope(), &fingerprint, order).await.map(http::response) {
        Ok(Ok(answer)) => answer,
        _ => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn without_layer(
    variants: Variants,
    variant: LayerVariant,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // The layer parses the body for its fingerprint, so the baselines parse it, too.
    let key = headers.get(IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
    if canonical::json(&body).is_err() || key.is_empty() {
        return StatusCode::BAD_REQUEST.into_response();
    }
    match variants.execute(variant, &Order::with_key(key)).await {
        Ok(response) => (StatusCode::CREATED, response.body).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
