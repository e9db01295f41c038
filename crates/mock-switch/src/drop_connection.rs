//! Closes a connection instead of answering: the client receives no byte and cannot know the outcome of its request.
//!
//! HTTP servers have no such response. The connection therefore carries a flag: a handler returns [`drop_connection`], a
//! layer sets the flag, and the next write to the connection fails.

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

/// Marks a response that must not be sent.
#[derive(Clone, Copy)]
struct DropConnection;

/// The response of a handler whose connection is to be closed.
pub(crate) fn drop_connection() -> Response {
    let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
    response.extensions_mut().insert(DropConnection);
    response
}

/// The layer that sets the connection's flag.
pub(crate) async fn set_drop_flag(
    Extension(flag): Extension<DropFlag>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    if response.extensions().get::<DropConnection>().is_some() {
        flag.0.store(true, Ordering::Release);
    }
    response
}

/// The flag of one connection; once true, writes fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct DropFlag(Arc<AtomicBool>);

/// A TCP listener whose connections have a drop flag.
pub(crate) struct DroppableListener(pub(crate) TcpListener);

impl Listener for DroppableListener {
    type Io = DroppableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (DroppableStream, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        (DroppableStream { stream, flag: DropFlag::default() }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A connection whose writes fail once its flag is set.
pub(crate) struct DroppableStream {
    stream: TcpStream,
    flag: DropFlag,
}

impl DroppableStream {
    pub(crate) fn drop_flag(&self) -> DropFlag {
        self.flag.clone()
    }

    fn writable(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if self.flag.0.load(Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "connection dropped by a scripted fault"));
        }
        Ok(Pin::new(&mut self.stream))
    }
}

impl AsyncRead for DroppableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for DroppableStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.writable() {
            Ok(stream) => stream.poll_write(cx, bytes),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.writable() {
            Ok(stream) => stream.poll_flush(cx),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
