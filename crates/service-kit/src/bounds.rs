//! Bounds around a router: size of a body, time of a request, and a panic in
//! one request staying in that request. All three answer with problems.

use std::any::Any;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::trace::TraceLayer;

use crate::problem::{self, Problem};

/// What one request may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Largest body in bytes; more is answered 413 `body_too_large`.
    pub body_bytes: usize,
    /// Longest time until the response begins; more is answered 503 `request_timeout`.
    pub request_timeout: Duration,
}

/// Puts the bounds, a trace span per request and the 404 and 405 problems
/// around `router`. Call it last: routes added later are outside.
pub fn bounded(router: Router, bounds: Bounds) -> Router {
    let timeout = from_fn(move |request: Request, next: Next| async move {
        match tokio::time::timeout(bounds.request_timeout, next.run(request)).await {
            Ok(response) => response,
            Err(_) => timed_out(bounds.request_timeout),
        }
    });
    problem::with_fallbacks(router)
        .layer(DefaultBodyLimit::max(bounds.body_bytes))
        .layer(timeout)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(TraceLayer::new_for_http())
}

fn timed_out(limit: Duration) -> Response {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "request_timeout", "The request took too long")
        .detail(format!("no answer within {} ms; what it did is not known", limit.as_millis()))
        .into_response()
}

fn panicked(cause: Box<dyn Any + Send + 'static>) -> Response {
    let text = cause
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| cause.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tracing::error!(panic = text, "a request panicked");
    Problem::internal().into_response()
}
