//! One connection: how much head it may send, and for how long it may keep us waiting.
//!
//! One clock covers every way of being slow: a connection on which no request is being handled and to
//! which no byte can be written is quiet, whether its client has nothing to ask, dribbles a head, or does
//! not read its answer. Quiet for too long, it is closed. How long a body may take to come, and a request
//! to be handled, is bounded around the router ([`crate::bounds`]).

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

/// How long a connection that was told to close may take to do so.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// What one connection may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionBounds {
    /// Most headers of a request (HTTP/1.1); more are answered 431. HTTP/2 counts 32 bytes for each
    /// against `head_bytes` instead.
    pub headers_max: usize,
    /// Largest head of a request in bytes, [`ConnectionBounds::HEAD_BYTES_MIN`] at least; a larger one is
    /// answered 431.
    pub head_bytes: usize,
    /// Longest time without a request being handled or a byte being written: for the head of the first
    /// request, between two requests, and for a client that does not read. Then the connection is closed.
    pub quiet: Duration,
}

impl ConnectionBounds {
    /// No server takes less.
    pub const HEAD_BYTES_MIN: usize = 8 * 1024;
}

impl Default for ConnectionBounds {
    /// 64 headers, 16 KiB, 20 s.
    fn default() -> Self {
        Self { headers_max: 64, head_bytes: 16 * 1024, quiet: Duration::from_secs(20) }
    }
}

/// Serves one connection until it ends, is quiet for too long, or `shutdown` finds it idle.
pub(crate) async fn serve<Io, S>(
    stream: Io,
    service: S,
    bounds: ConnectionBounds,
    shutdown: CancellationToken,
) where
    Io: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let activity = Arc::new(Activity::default());
    let handling = activity.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let handled = handling.clone().begin();
        let response = service.clone().oneshot(request.map(Body::new));
        async move {
            let response = response.await;
            drop(handled);
            response
        }
    });

    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // `quiet` does this for both protocols, and before it is known which one is spoken.
        .header_read_timeout(None)
        .max_headers(bounds.headers_max)
        .max_buf_size(bounds.head_bytes.max(ConnectionBounds::HEAD_BYTES_MIN));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(bounds.head_bytes).unwrap_or(u32::MAX));
    let stream = Watched { stream, activity: activity.clone() };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut told = false;
    loop {
        let patience = if told { CLOSE_WITHIN.min(bounds.quiet) } else { bounds.quiet };
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "a connection ended");
                }
                return;
            }
            () = shutdown.cancelled(), if !told => {}
            () = activity.quiet_for(patience) => {
                if told {
                    tracing::debug!("a connection did not close by itself");
                    return;
                }
            }
        }
        told = true;
        connection.as_mut().graceful_shutdown();
    }
}

/// What happens on a connection.
struct Activity {
    now: Mutex<Now>,
    /// A request was handled.
    handled: Notify,
}

struct Now {
    /// Requests being handled.
    handling: usize,
    /// When one was handled last, or a byte written.
    moved_at: Instant,
}

impl Default for Activity {
    fn default() -> Self {
        Self { now: Mutex::new(Now { handling: 0, moved_at: Instant::now() }), handled: Notify::new() }
    }
}

impl Activity {
    fn change(&self, change: impl FnOnce(&mut Now)) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut now);
        now.moved_at = Instant::now();
    }

    /// A request begins; it ends when the value is dropped.
    fn begin(self: Arc<Self>) -> Handled {
        self.change(|now| now.handling += 1);
        Handled(self)
    }

    /// Since when it has been quiet; none while a request is handled.
    fn quiet_since(&self) -> Option<Instant> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        (now.handling == 0).then_some(now.moved_at)
    }

    /// Returns once it has been quiet for so long.
    async fn quiet_for(&self, patience: Duration) {
        loop {
            match self.quiet_since().map(|since| since + patience) {
                Some(end) if end <= Instant::now() => return,
                Some(end) => sleep_until(end).await,
                None => self.handled.notified().await,
            }
        }
    }
}

/// A request being handled.
struct Handled(Arc<Activity>);

impl Drop for Handled {
    fn drop(&mut self) {
        self.0.change(|now| now.handling -= 1);
        self.0.handled.notify_one();
    }
}

/// A stream whose progress in writing is seen. Reading is none: a dribbled head would be.
struct Watched<Io> {
    stream: Io,
    activity: Arc<Activity>,
}

impl<Io: AsyncRead + Unpin> AsyncRead for Watched<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Watched<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.activity.change(|_| {});
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
        self.activity.change(|_| {});
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
