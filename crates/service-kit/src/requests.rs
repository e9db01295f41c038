//! What a process does with each HTTP request: measures it, in a histogram of the process's own; and dies before the answer, if a test wants it.

use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use crash_point::crash_point;

/// One request: the labels of its metric, and how long it took.
#[derive(Clone, Debug)]
pub struct MeasuredRequest {
    /// The method, of a bounded set.
    pub method: &'static str,
    /// The route, of a bounded set.
    pub route: String,
    /// The status of the response.
    pub status: String,
    /// From the head of the request to that of the response.
    pub duration: Duration,
}

/// Runs a request and measures it.
pub async fn measure(request: Request, next: Next) -> (Response, MeasuredRequest) {
    let started = Instant::now();
    let (method, route) = (method(request.method()), route(&request));
    let response = next.run(request).await;
    let status = response.status().as_str().to_owned();
    (response, MeasuredRequest { method, route, status, duration: started.elapsed() })
}

/// A crash point of each request, between its effect and its answer: `before the answer to POST /api/v1/payments`. An answer of 4xx or 5xx is
/// sent.
pub async fn crash_before_answer(request: Request, next: Next) -> Response {
    // A release build has no points, and spends nothing on their names.
    let point = cfg!(debug_assertions)
        .then(|| format!("before the answer to {} {}", method(request.method()), route(&request)));
    let response = next.run(request).await;
    if let Some(point) = point.filter(|_| response.status().is_success()) {
        crash_point(&point);
    }
    response
}

/// The route of a request, as it is registered; `unmatched` if none matches.
#[must_use]
pub fn route(request: &Request) -> String {
    request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned()
}

/// The method as a metric label; methods invented by clients are `other`, to bound the number of labels.
#[must_use]
pub fn method(method: &Method) -> &'static str {
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
