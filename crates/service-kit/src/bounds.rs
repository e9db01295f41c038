//! Bounds around a router: size and time of a request body, time of a request; a panic ends only its own request.
//! Each violation is answered with a problem.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Sleep;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::trace::TraceLayer;

use crate::problem::{self, Problem};

/// Size and time limits of one request.
#[derive(Debug, Clone, Copy)]
pub struct RequestBounds {
    /// Largest body in bytes; more is answered 413 `body_too_large`.
    pub body_bytes: usize,
    /// Longest time from a request's head to the end of its body, if a handler reads the body; more is answered 408
    /// `body_timeout`, and the connection is closed.
    pub body_timeout: Duration,
    /// Longest time until the response begins; more is answered 503 `request_timeout`.
    pub request_timeout: Duration,
}

/// Puts the bounds, a trace span per request and the 404 and 405 problems around `router`. Call it last: routes added
/// later are unbounded.
pub fn bounded(router: Router, bounds: RequestBounds) -> Router {
    let timeout = from_fn(move |request: Request, next: Next| async move {
        let late = Arc::new(AtomicBool::new(false));
        let request = request.map(|body| with_timeout(body, bounds.body_timeout, late.clone()));
        match tokio::time::timeout(bounds.request_timeout, next.run(request)).await {
            // The handler's response to an incomplete body is discarded.
            Ok(_) if late.load(Ordering::Relaxed) => body_timed_out(bounds.body_timeout),
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
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "request_timeout", "The request timed out")
        .detail(format!(
            "the request was not completed within {} ms and its outcome is unknown; retry it with the same Idempotency-Key",
            limit.as_millis()
        ))
        .into_response()
}

fn body_timed_out(limit: Duration) -> Response {
    let mut response =
        Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "The request body timed out")
            .detail(format!(
                "the request body was not received within {} ms and nothing was done; send the request again",
                limit.as_millis()
            ))
            .into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The body with a time limit; when it is exceeded, reading fails and `late` is set.
fn with_timeout(body: Body, limit: Duration, late: Arc<AtomicBool>) -> Body {
    if body.is_end_stream() {
        return body;
    }
    Body::new(TimedBody { body, end: Box::pin(tokio::time::sleep(limit)), late })
}

struct TimedBody {
    body: Body,
    end: Pin<Box<Sleep>>,
    late: Arc<AtomicBool>,
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // The clock counts only while the next frame has not arrived.
        let ready = Pin::new(&mut self.body).poll_frame(cx);
        if ready.is_pending() && self.end.as_mut().poll(cx).is_ready() {
            self.late.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(Err(axum::Error::new("the request body timed out"))));
        }
        ready
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn panicked(cause: Box<dyn Any + Send + 'static>) -> Response {
    let text = cause
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| cause.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tracing::error!(panic = text, "the handler of an HTTP request panicked; the client received 500");
    Problem::internal().into_response()
}
