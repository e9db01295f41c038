//! The span and the duration of each request.

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument as _;
use tracing::field::Empty;

/// Wraps the request in a span and records its duration. Handlers add `api_key.id`, `idempotency.key` and `payment.id`.
pub(crate) async fn record_request(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = method(request.method());
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!(
        "request",
        http.method = method,
        http.route = route,
        request.id =
            request.headers().get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default(),
        api_key.id = Empty,
        idempotency.key = Empty,
        payment.id = Empty,
    );
    let response = next.run(request).instrument(span).await;
    let status = response.status().as_str().to_owned();
    metrics::histogram!("http_request_duration_seconds", "method" => method, "route" => route, "status" => status)
        .record(started.elapsed());
    response
}

/// The method as a metric label; methods invented by clients are `other`, to bound the number of labels.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
