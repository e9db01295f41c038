//! Binding and serving: an error that says what to change, the real address in
//! the log, bounds on every connection, and a stop that waits for running
//! requests, but not for ever.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, anyhow};
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::serve::Listener;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::connection::{self, ConnectionBounds};

/// How long running requests may take to finish once the process stops.
const GRACE: Duration = Duration::from_secs(10);

/// Binds `addr` and serves `router` until `shutdown`, with the default bounds of
/// a connection. `setting` is the name of the setting that holds the address,
/// for the error message.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(
    addr: SocketAddr,
    setting: &str,
    router: Router,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let listener = bind(addr, setting).await?;
    serve_on(listener, move |_| router.clone(), ConnectionBounds::default(), shutdown).await;
    Ok(())
}

/// Binds `addr`; port 0 takes a free one, which the listener and the log know.
///
/// # Errors
/// When the address cannot be bound, saying which `setting` to change.
pub async fn bind(addr: SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(addr).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow!("port {} is in use; set {setting} to another address", addr.port())
        }
        _ => anyhow::Error::new(error).context(format!("cannot listen on {addr}; set {setting}")),
    })?;
    let bound = listener.local_addr().context("the bound address cannot be read")?;
    tracing::info!(address = %bound, "listening");
    Ok(listener)
}

/// Serves on a bound listener until `shutdown`, then gives running requests
/// 10 s to finish. `service` gives each connection its service.
pub async fn serve_on<L, S>(
    mut listener: L,
    service: impl Fn(&L::Io) -> S,
    bounds: ConnectionBounds,
    shutdown: CancellationToken,
) where
    L: Listener,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    // Whoever stops waiting for this function closes its connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            (stream, _) = listener.accept() => {
                let service = service(&stream);
                connections.spawn(connection::serve(stream, service, bounds, shutdown.clone()));
            }
            Some(_) = connections.join_next() => {}
            () = shutdown.cancelled() => break,
        }
    }
    drop(listener);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, finished).await.is_err() {
        tracing::warn!(grace_s = GRACE.as_secs(), "requests still running were cut off");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_in_use_names_the_setting() {
        let taken = bind(SocketAddr::from(([127, 0, 0, 1], 0)), "X").await.unwrap();
        let addr = taken.local_addr().unwrap();
        let error = bind(addr, "DEMO_LISTEN").await.unwrap_err().to_string();
        let expected = format!("port {} is in use; set DEMO_LISTEN to another address", addr.port());
        assert_eq!(error, expected);
    }

    #[tokio::test]
    async fn stops_when_told() {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), "X").await.unwrap();
        let token = CancellationToken::new();
        token.cancel();
        serve_on(listener, |_| Router::new(), ConnectionBounds::default(), token).await;
    }
}
