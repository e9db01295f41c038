//! Bounds around a router: size and time of a request body, time of a request; a panic ends only its own request.
//! Each violation is answered with a problem.

use std::any::Any;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
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
    /// Largest body in bytes; more is answered 413 `body_too_large`. A body up to this size is read to its end also if the handler
    /// refuses without it, so that the connection can be used again; otherwise the response says `Connection: close`.
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
        let body = SharedBody::default();
        let waits_for_continue = request.headers().contains_key(header::EXPECT);
        let request = request.map(|inner| body.with_timeout(inner, bounds.body_timeout));
        let Ok(response) = tokio::time::timeout(bounds.request_timeout, next.run(request)).await else {
            return timed_out(bounds.request_timeout);
        };
        if body.is_late() {
            // The handler's response to an incomplete body is discarded.
            return body_timed_out(bounds.body_timeout);
        }
        // A client that waits for 100 Continue has not sent the body, and must not be asked for it now.
        let max = if waits_for_continue { 0 } else { bounds.body_bytes };
        if body.read_rest(max).await { response } else { closing(response) }
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
    let response = Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "The request body timed out")
        .detail(format!(
            "the request body was not received within {} ms and nothing was done; send the request again",
            limit.as_millis()
        ))
        .into_response();
    closing(response)
}

/// Says that the server closes the connection: the rest of the request body is on it, where the next request would be.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// What is known of a request's body after its handler has ended.
#[derive(Clone, Default)]
struct SharedBody(Arc<Mutex<BodyState>>);

#[derive(Default)]
struct BodyState {
    /// The time limit was exceeded.
    is_late: bool,
    /// The body that the handler dropped before its end.
    rest: Option<UnreadBody>,
}

/// A body, and the instant at which it must have ended.
struct UnreadBody {
    body: Body,
    end: Pin<Box<Sleep>>,
}

/// Why the next frame of a body did not come.
enum ReadError {
    Late,
    Broken(axum::Error),
}

impl UnreadBody {
    /// The next frame; `None` after the last one. The clock counts only while the next frame has not arrived.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, ReadError>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending if self.end.as_mut().poll(cx).is_ready() => Poll::Ready(Err(ReadError::Late)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(frame) => Poll::Ready(frame.transpose().map_err(ReadError::Broken)),
        }
    }
}

impl SharedBody {
    /// The body with a time limit; when it is exceeded, reading fails.
    fn with_timeout(&self, body: Body, limit: Duration) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let unread = UnreadBody { body, end: Box::pin(tokio::time::sleep(limit)) };
        Body::new(TimedBody { unread: Some(unread), shared: self.clone() })
    }

    fn is_late(&self) -> bool {
        self.0.lock().is_ok_and(|state| state.is_late)
    }

    /// Reads what the handler left of a small body; `false` if it is too large or too late. A client that sends its body after
    /// the head would otherwise find its connection closed after a refusal that needed no body.
    async fn read_rest(&self, max: usize) -> bool {
        let rest = self.0.lock().ok().and_then(|mut state| state.rest.take());
        let Some(mut rest) = rest else { return true };
        if max == 0 {
            return false;
        }
        let mut read = 0;
        loop {
            if rest.body.size_hint().lower() > max.saturating_sub(read) as u64 || read > max {
                return false;
            }
            match poll_fn(|cx| rest.poll_frame(cx)).await {
                Ok(None) => return true,
                Ok(Some(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
                Err(_) => return false,
            }
        }
    }
}

struct TimedBody {
    /// `None` after its end.
    unread: Option<UnreadBody>,
    shared: SharedBody,
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(unread) = &mut self.unread else { return Poll::Ready(None) };
        let ended = match ready!(unread.poll_frame(cx)) {
            Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
            Err(ReadError::Late) => {
                if let Ok(mut state) = self.shared.0.lock() {
                    state.is_late = true;
                }
                return Poll::Ready(Some(Err(axum::Error::new("the request body timed out"))));
            }
            Ok(None) => None,
            Err(ReadError::Broken(error)) => Some(Err(error)),
        };
        self.unread = None;
        Poll::Ready(ended)
    }

    fn is_end_stream(&self) -> bool {
        self.unread.as_ref().is_none_or(|unread| unread.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.unread.as_ref().map_or_else(SizeHint::default, |unread| unread.body.size_hint())
    }
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        if let Some(rest) = self.unread.take().filter(|unread| !unread.body.is_end_stream())
            && let Ok(mut state) = self.shared.0.lock()
        {
            state.rest = Some(rest);
        }
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

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use futures::poll;
    use tokio::sync::mpsc;
    use tower::ServiceExt as _;

    use super::*;

    const BOUNDS: RequestBounds = RequestBounds {
        body_bytes: 10,
        body_timeout: Duration::from_secs(3_600),
        request_timeout: Duration::from_secs(3_600),
    };

    /// A body whose frames arrive when the test sends them.
    struct Arriving(mpsc::UnboundedReceiver<Bytes>);

    impl HttpBody for Arriving {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    /// A request to a handler that refuses without reading the body.
    fn refused(expects_continue: bool) -> (mpsc::UnboundedSender<Bytes>, impl Future<Output = Response>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let router = bounded(Router::new().route("/", post(|| async { StatusCode::BAD_REQUEST })), BOUNDS);
        let mut request = Request::post("/").body(Body::new(Arriving(receiver))).unwrap();
        if expects_continue {
            request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        }
        (sender, async { router.oneshot(request).await.unwrap() })
    }

    #[tokio::test]
    async fn a_refusal_waits_for_the_end_of_a_small_body_and_keeps_the_connection() {
        let (sender, response) = refused(false);
        let mut response = std::pin::pin!(response);
        assert!(poll!(&mut response).is_pending());
        sender.send(Bytes::from_static(b"12345")).unwrap();
        assert!(poll!(&mut response).is_pending());
        drop(sender);
        let response = response.await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert!(response.headers().get(header::CONNECTION).is_none());
    }

    #[tokio::test]
    async fn a_refusal_of_a_large_or_withheld_body_closes_the_connection() {
        let (sender, response) = refused(false);
        for _ in 0..3 {
            sender.send(Bytes::from_static(b"12345")).unwrap();
        }
        assert_eq!(response.await.headers()[header::CONNECTION], "close");
        let (_sender, response) = refused(true);
        assert_eq!(response.await.headers()[header::CONNECTION], "close");
    }
}
