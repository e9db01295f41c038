//! The real API behind a gateway that loses, delays or replaces some answers. It records the idempotency key of each attempt.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde_json::json;
use testkit::proxy::FaultProxy;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the client gets for one attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// The request is executed; its answer is lost with the connection.
    Lost,
    /// The request is executed; its answer does not arrive.
    Late,
    /// The request is not executed, and a problem with this status says to retry after a second.
    Retry(StatusCode),
    /// The request is not executed, and the gateway answers 503 in its own words.
    Gateway,
}

/// One attempt of the client.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) key: String,
    pub(super) at: Instant,
}

/// The gateway. Dropping it closes all connections.
pub(super) struct FlakyApi {
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    /// The answers of the next attempts; later ones are passed through.
    script: Mutex<VecDeque<Answer>>,
    attempts: Mutex<Vec<Attempt>>,
    proxy: FaultProxy,
    target: String,
    http: reqwest::Client,
}

impl FlakyApi {
    /// Starts a gateway to the API at `target`.
    pub(super) async fn start(target: String, script: &[Answer]) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = FaultProxy::start(&listener.local_addr()?.to_string()).await?;
        let shared = Arc::new(Shared {
            script: Mutex::new(script.iter().copied().collect()),
            attempts: Mutex::default(),
            proxy,
            target,
            http: testkit::http(),
        });
        let router = axum::Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // The task is aborted before the server ends.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { shared, serving })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.shared.proxy.address)
    }

    /// All attempts so far.
    pub(super) fn attempts(&self) -> Vec<Attempt> {
        self.shared.attempts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for FlakyApi {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let key = headers.get("Idempotency-Key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
    let attempt = Attempt { key, at: Instant::now() };
    let scripted = shared.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let answer = match scripted {
        Some(Answer::Retry(status)) => retry(status),
        Some(Answer::Gateway) => (StatusCode::SERVICE_UNAVAILABLE, "{}").into_response(),
        Some(Answer::Lost | Answer::Late) | None => forward(&shared, &uri, &headers, body).await,
    };
    // An attempt counts once its request is executed.
    shared.attempts.lock().unwrap_or_else(PoisonError::into_inner).push(attempt);
    match scripted {
        Some(Answer::Lost) => shared.proxy.cut(),
        Some(Answer::Late) => std::future::pending().await,
        Some(Answer::Retry(_) | Answer::Gateway) | None => {}
    }
    answer
}

/// A problem as the API sends it.
fn retry(status: StatusCode) -> Response {
    let problem =
        json!({"type": "urn:problem:retry", "title": "Retry", "status": status.as_u16(), "code": "retry"});
    let headers = [("Retry-After", "1"), ("Content-Type", "application/problem+json")];
    (status, headers, problem.to_string()).into_response()
}

async fn forward(shared: &Shared, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Response {
    let mut request = shared.http.post(format!("{}{}", shared.target, uri.path())).body(body);
    for name in ["Authorization", "Idempotency-Key", "Content-Type"] {
        if let Some(value) = headers.get(name) {
            request = request.header(name, value);
        }
    }
    let response = match request.timeout(Duration::from_secs(30)).send().await {
        Ok(response) => response,
        Err(error) => return (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    };
    let (status, headers) = (response.status(), response.headers().clone());
    (status, headers, response.bytes().await.unwrap_or_default()).into_response()
}
