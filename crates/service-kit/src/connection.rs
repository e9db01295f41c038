//! Limits of one connection: size of a request head, and time without progress.
//!
//! A connection is idle while no request is being handled and no byte can be written to it: its client sends no request,
//! sends a head byte by byte, or does not read its response. A connection that is idle for too long is closed. The time of
//! a body and of a request is limited around the router ([`crate::bounds`]).

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt as _};

use crate::peers::PeerAddress;

/// Longest time of a graceful close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Limits of one connection, and of the connections of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionBounds {
    /// Upper bound of headers of a request (HTTP/1.1); more are answered 431. HTTP/2 counts 32 bytes for each
    /// against `head_bytes` instead.
    pub headers_max: usize,
    /// Largest head of a request in bytes, at least [`ConnectionBounds::HEAD_BYTES_MIN`]; a larger one is answered 431.
    pub head_bytes: usize,
    /// Longest time without a request being handled or a byte being written: for the head of the first request, between
    /// two requests, and for a client that does not read. Then the connection is closed.
    pub idle: Duration,
    /// Most connections of a listener at once; a further one is closed without an answer.
    pub connections_max: usize,
    /// Most connections of one address at once ([`PeerAddress`]); a further one is closed without an answer.
    pub connections_per_address_max: usize,
}

impl ConnectionBounds {
    /// Smallest `head_bytes` that the HTTP server supports.
    pub const HEAD_BYTES_MIN: usize = 8 * 1024;
}

impl Default for ConnectionBounds {
    /// The default limits: 64 headers, a head of 16 KiB, 20 s without progress, 8,192 connections, 1,024 of one address.
    fn default() -> Self {
        Self {
            headers_max: 64,
            head_bytes: 16 * 1024,
            idle: Duration::from_secs(20),
            connections_max: 8_192,
            connections_per_address_max: 1_024,
        }
    }
}

/// Serves one connection of `peer` until it ends, is idle for too long, or `shutdown` is requested and its requests have ended.
pub(crate) async fn serve<Io, S>(
    stream: Io,
    peer: PeerAddress,
    service: S,
    bounds: ConnectionBounds,
    shutdown: CancellationToken,
) where
    Io: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let activity = Arc::new(ConnectionActivity::default());
    let requests = activity.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let guard = requests.clone().begin_request();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let response = service.clone().oneshot(request);
        async move {
            let response = response.await;
            drop(guard);
            response
        }
    });

    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // The idle limit does this for both protocols, and before the protocol is known.
        .header_read_timeout(None)
        .max_headers(bounds.headers_max)
        .max_buf_size(bounds.head_bytes.max(ConnectionBounds::HEAD_BYTES_MIN));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(bounds.head_bytes).unwrap_or(u32::MAX));
    let stream = ActivityStream { stream, activity: activity.clone() };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut is_closing = false;
    loop {
        let limit = if is_closing { CLOSE_TIMEOUT.min(bounds.idle) } else { bounds.idle };
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "the HTTP server closed a connection because of an error");
                }
                return;
            }
            () = shutdown.cancelled(), if !is_closing => {}
            () = activity.idle_for(limit) => {
                if is_closing {
                    tracing::debug!("the HTTP server dropped a connection that stayed open after the server had begun to close it");
                    return;
                }
            }
        }
        is_closing = true;
        connection.as_mut().graceful_shutdown();
    }
}

/// Progress on a connection.
struct ConnectionActivity {
    state: Mutex<ActivityState>,
    /// Signalled when a request has been handled.
    handled: Notify,
}

struct ActivityState {
    /// Requests being handled.
    in_flight: usize,
    /// When a request last began or ended, or a byte was written.
    last_progress: Instant,
}

impl Default for ConnectionActivity {
    fn default() -> Self {
        let state = ActivityState { in_flight: 0, last_progress: Instant::now() };
        Self { state: Mutex::new(state), handled: Notify::new() }
    }
}

impl ConnectionActivity {
    fn record(&self, change: impl FnOnce(&mut ActivityState)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        state.last_progress = Instant::now();
    }

    /// Records the begin of a request; its end is recorded when the guard is dropped.
    fn begin_request(self: Arc<Self>) -> RequestGuard {
        self.record(|state| state.in_flight += 1);
        RequestGuard(self)
    }

    /// Since when the connection has been idle; `None` while a request is handled.
    fn idle_since(&self) -> Option<Instant> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.in_flight == 0).then_some(state.last_progress)
    }

    /// Returns once the connection has been idle for `limit`.
    async fn idle_for(&self, limit: Duration) {
        loop {
            match self.idle_since().map(|since| since + limit) {
                Some(end) if end <= Instant::now() => return,
                Some(end) => sleep_until(end).await,
                None => self.handled.notified().await,
            }
        }
    }
}

/// A request being handled.
struct RequestGuard(Arc<ConnectionActivity>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.record(|state| state.in_flight -= 1);
        self.0.handled.notify_one();
    }
}

/// A stream that records written bytes as progress. Bytes read are no progress: a head sent byte by byte must not count.
struct ActivityStream<Io> {
    stream: Io,
    activity: Arc<ConnectionActivity>,
}

impl<Io: AsyncRead + Unpin> AsyncRead for ActivityStream<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for ActivityStream<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.activity.record(|_| {});
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, buffers));
        self.activity.record(|_| {});
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
