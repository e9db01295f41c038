//! Distributed traces: the W3C trace context of a payment, spans, and their export over OTLP.
//!
//! A payment outlives the request, the process and the machine that began it, so its trace context is stored with its row, and
//! each later step is a child of that context: no step depends on another one that a killed process did not export
//! (decision record 0023).
//!
//! A process exports spans if `OTEL_EXPORTER_OTLP_ENDPOINT` is set ([`Exporter::start`]). Without it nothing is recorded.
//!
//! | file | content |
//! |---|---|
//! | `trace_parent` | the `traceparent` header |
//! | `span` | spans, and the current one of a task |
//! | `export` | the exporter of a process |
//! | [`attribute`] | names of attributes |

pub mod attribute;
mod export;
mod span;
mod trace_parent;

pub use export::{Exporter, ExporterError, is_exporting};
pub use opentelemetry::trace::SpanKind;
pub use span::{NewSpan, Span, link_current_to, set_key_on_current, set_on_current, span};
pub use trace_parent::TraceParent;

/// Name of the header that carries the trace context, in HTTP requests and in messages.
pub const TRACEPARENT: &str = "traceparent";
/// Name of the response header that names the trace of a request.
pub const TRACERESPONSE: &str = "traceresponse";
