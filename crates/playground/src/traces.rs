//! The traces of the bank's processes, as they arrive over OTLP (`./dev up --observe`).

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem, Query};
use trace_collector::span::ReceivedSpan;
use trace_collector::{Collector, TraceSummary};

use crate::server::Page;

/// Traces that one list shows.
const LISTED_MAX: usize = 100;

/// The received traces.
#[derive(Debug)]
pub struct Traces {
    collector: Collector,
    /// Address of a workflow in the Temporal UI, without its id.
    temporal_ui: Option<String>,
}

impl Traces {
    /// Receives traces at `address`. `temporal_ui` is the address of a workflow in the Temporal UI, without its id.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn receive(address: SocketAddr, temporal_ui: Option<String>) -> anyhow::Result<Self> {
        let collector = Collector::listen(address).await.with_context(|| {
            format!("traces cannot be received at {address}; set PLAYGROUND_OTLP_LISTEN to another address")
        })?;
        Ok(Self { collector, temporal_ui })
    }

    /// The value of `OTEL_EXPORTER_OTLP_ENDPOINT` for the processes to trace.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.collector.endpoint()
    }
}

/// Which traces a list shows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Only those of this payment.
    #[serde(default)]
    payment_id: Option<String>,
}

/// The newest traces.
#[derive(Serialize)]
pub(crate) struct List {
    traces: Vec<TraceSummary>,
    temporal_ui: Option<String>,
}

/// The spans of a trace.
#[derive(Serialize)]
pub(crate) struct Trace {
    spans: Vec<ReceivedSpan>,
}

/// `GET /api/traces`
pub(crate) async fn list(
    State(page): State<Page>,
    Query(filter): Query<Filter>,
) -> Result<Json<List>, Problem> {
    let received = received(page)?;
    let is_listed =
        |trace: &TraceSummary| filter.payment_id.is_none() || trace.payment_id == filter.payment_id;
    let traces = received.collector.traces().into_iter().filter(is_listed).take(LISTED_MAX).collect();
    Ok(Json(List { traces, temporal_ui: received.temporal_ui.clone() }))
}

/// `GET /api/traces/{trace_id}`
pub(crate) async fn retrieve(
    State(page): State<Page>,
    Path(trace_id): Path<String>,
) -> Result<Json<Trace>, Problem> {
    let spans = received(page)?.collector.trace(&trace_id);
    if spans.is_empty() {
        return Err(Problem::missing(
            "unknown_trace",
            "no span of this trace was received; the newest 1,000 traces are kept",
        ));
    }
    Ok(Json(Trace { spans }))
}

fn received(page: Page) -> Result<Arc<Traces>, Problem> {
    page.traces.ok_or_else(|| {
        Problem::conflict(
            "no_traces",
            "this page receives no traces; start it with ./dev up --observe".to_owned(),
        )
    })
}
