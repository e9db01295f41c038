//! A collector of traces for one machine: receives spans over OTLP/gRPC and keeps the newest traces in memory. The tests assert
//! the shape of a trace by it, and the playground shows the traces on a page. It is no substitute for a trace backend.
//!
//! | file | content |
//! |---|---|
//! | `receive` | the OTLP service |
//! | [`span`] | a received span |
//! | `store` | the newest traces, within bounds |

mod receive;
pub mod span;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::TraceServiceServer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::receive::Receiver;
use crate::span::ReceivedSpan;
use crate::store::Store;

pub use store::TraceSummary;

/// Longest OTLP request, in bytes: a batch of 512 spans has about 300 KiB.
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A collector that listens until it is dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    store: Arc<Store>,
    _stop: DropGuard,
}

impl Collector {
    /// Listens on `address`; port 0 takes a free one. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn listen(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let store = Arc::new(Store::default());
        let stop = CancellationToken::new();
        let service =
            TraceServiceServer::new(Receiver(store.clone())).max_decoding_message_size(REQUEST_BYTES_MAX);
        let server = Server::builder().add_service(service);
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(server.serve_with_incoming_shutdown(TcpIncoming::from(listener), stopped));
        Ok(Self { address, store, _stop: stop.drop_guard() })
    }

    /// The value of `OTEL_EXPORTER_OTLP_ENDPOINT` for processes that export to this collector.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The newest traces, the newest first.
    #[must_use]
    pub fn traces(&self) -> Vec<TraceSummary> {
        self.store.summaries()
    }

    /// The spans of a trace in the order of their start; empty if the trace is unknown.
    #[must_use]
    pub fn trace(&self, trace_id: &str) -> Vec<ReceivedSpan> {
        self.store.trace(trace_id)
    }

    /// Changes when spans arrive.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.store.changes()
    }
}
