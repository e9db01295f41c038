//! Binding and serving: errors that name the setting to change, the bound address in the log, limits on every connection,
//! and a graceful stop of bounded length.

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
use crate::peers::{PeerAddress, PeerShares};

/// Longest time for running requests to finish after a stop.
const GRACE: Duration = Duration::from_secs(10);

/// Binds `addr` and serves `router` until `shutdown`, with the default limits of a connection. `setting` is the name of
/// the setting that holds the address, for the error message.
///
/// # Errors
/// If the address cannot be bound.
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

/// Binds `addr`; port 0 takes a free one, which the log names.
///
/// # Errors
/// If the address cannot be bound; the error names the `setting` to change.
pub async fn bind(addr: SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(addr).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow!("port {} is in use; set {setting} to another address", addr.port())
        }
        _ => anyhow::Error::new(error).context(format!("cannot listen on {addr}; set {setting}")),
    })?;
    let bound = listener.local_addr().context("cannot read the bound address")?;
    tracing::info!(address = %bound, "the HTTP server is listening");
    Ok(listener)
}

/// Serves on a bound listener until `shutdown`; then running requests have 10 s to finish. `service` makes the service of
/// each connection. A connection above a limit of `bounds` is closed; the requests of the others know their peer ([`PeerAddress`]).
pub async fn serve_on<L, S>(
    mut listener: L,
    service: impl Fn(&L::Io) -> S,
    bounds: ConnectionBounds,
    shutdown: CancellationToken,
) where
    L: Listener<Addr = SocketAddr>,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    // Dropping this future closes its connections.
    let mut connections = JoinSet::new();
    let shares = PeerShares::new(bounds.connections_per_address_max);
    loop {
        tokio::select! {
            (stream, address) = listener.accept() => {
                if connections.len() >= bounds.connections_max {
                    metrics::counter!("http_connections_refused_total", "limit" => "all").increment(1);
                    continue;
                }
                let peer = PeerAddress::from(address);
                let Some(share) = shares.take(peer) else {
                    metrics::counter!("http_connections_refused_total", "limit" => "address").increment(1);
                    continue;
                };
                let service = service(&stream);
                let serving = connection::serve(stream, peer, service, bounds, shutdown.clone());
                connections.spawn(async move {
                    serving.await;
                    drop(share);
                });
            }
            Some(_) = connections.join_next() => {}
            () = shutdown.cancelled() => break,
        }
    }
    drop(listener);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, finished).await.is_err() {
        tracing::warn!(
            grace_s = GRACE.as_secs(),
            "the HTTP server aborted requests that were still running after the shutdown's grace period"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_reported_with_its_setting() {
        let taken = bind(SocketAddr::from(([127, 0, 0, 1], 0)), "X").await.unwrap();
        let addr = taken.local_addr().unwrap();
        let error = bind(addr, "DEMO_LISTEN").await.unwrap_err().to_string();
        let expected = format!("port {} is in use; set DEMO_LISTEN to another address", addr.port());
        assert_eq!(error, expected);
    }

    #[tokio::test]
    async fn a_cancelled_token_stops_the_http_server() {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), "X").await.unwrap();
        let token = CancellationToken::new();
        token.cancel();
        serve_on(listener, |_| Router::new(), ConnectionBounds::default(), token).await;
    }
}
