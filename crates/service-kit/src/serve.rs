//! Binding and serving: an error that says what to change, the real address in
//! the log, and a stop that waits for running requests, but not for ever.

use std::future::{Future, IntoFuture};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, anyhow};
use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long running requests may take to finish once the process stops.
const GRACE: Duration = Duration::from_secs(10);

/// Binds `addr` and serves `router` until `shutdown`. `setting` is the name of
/// the setting that holds the address, for the error message.
///
/// # Errors
/// When the address cannot be bound, or the listener breaks.
pub async fn serve(
    addr: SocketAddr,
    setting: &str,
    router: Router,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    serve_on(bind(addr, setting).await?, router, shutdown).await
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

/// Serves `router` on a bound listener until `shutdown`, then gives running
/// requests 10 s to finish.
///
/// # Errors
/// When the listener breaks.
pub async fn serve_on(
    listener: TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let graceful = shutdown.clone().cancelled_owned();
    let server = axum::serve(listener, router).with_graceful_shutdown(graceful);
    within_grace(server.into_future(), shutdown).await
}

/// Drives a server that stops gracefully on `shutdown`, but for 10 s at most
/// after it. For servers that [`serve_on`] cannot build.
///
/// # Errors
/// When the server fails.
pub async fn within_grace(
    server: impl Future<Output = std::io::Result<()>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let overdue = async {
        shutdown.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = server => served.context("the HTTP server failed"),
        () = overdue => {
            tracing::warn!(grace_s = GRACE.as_secs(), "requests still running were cut off");
            Ok(())
        }
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
        serve_on(listener, Router::new(), token).await.unwrap();
    }
}
