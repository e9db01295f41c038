//! Cutting a connection instead of answering: the client sees it close without
//! one byte, and cannot know what became of its request.
//!
//! An HTTP server has no word for that, so the connection itself carries a
//! switch: a handler answers with [`cut`], a layer turns the switch, and the
//! next write fails.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::Extension;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Marks a response that must never be sent.
#[derive(Clone, Copy)]
struct Cut;

/// The response of a handler that wants the connection cut.
pub(crate) fn cut() -> Response {
    let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
    response.extensions_mut().insert(Cut);
    response
}

/// The layer that turns a connection's switch.
pub(crate) async fn obey(Extension(line): Extension<Line>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.extensions().get::<Cut>().is_some() {
        line.0.store(true, Ordering::Release);
    }
    response
}

/// One connection's switch: true once it is cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(Arc<AtomicBool>);

/// A TCP listener whose connections can be cut.
pub(crate) struct CuttableListener(pub(crate) TcpListener);

impl Listener for CuttableListener {
    type Io = CuttableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (CuttableStream, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        (CuttableStream { stream, line: Line::default() }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A connection that fails to write once it is cut.
pub(crate) struct CuttableStream {
    stream: TcpStream,
    line: Line,
}

impl CuttableStream {
    /// Its switch.
    pub(crate) fn line(&self) -> Line {
        self.line.clone()
    }

    fn whole(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if self.line.0.load(Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "cut on request"));
        }
        Ok(Pin::new(&mut self.stream))
    }
}

impl AsyncRead for CuttableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for CuttableStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.whole() {
            Ok(stream) => stream.poll_write(cx, bytes),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.whole() {
            Ok(stream) => stream.poll_flush(cx),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
