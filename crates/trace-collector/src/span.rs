//! A received span.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde::Serialize;

/// Longest text of a name or a value, in characters; the rest is cut.
const TEXT_CHARS_MAX: usize = 500;

/// A span, with its ids in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReceivedSpan {
    /// The trace.
    pub trace_id: String,
    /// Unique in the trace.
    pub span_id: String,
    /// The span that this one is a part of; `None` for the first span of a trace. It may belong to a process that exports
    /// elsewhere, or nowhere.
    pub parent_id: Option<String>,
    /// The program that recorded it, such as `payment-worker`.
    pub service: String,
    /// Process id of the program, if it says so: after a crash another one carries on.
    pub process_id: Option<String>,
    /// What was done.
    pub name: String,
    /// `server`, `client`, `producer`, `consumer` or `internal`.
    pub kind: &'static str,
    /// Start, in microseconds since 1970.
    pub started_us: u64,
    /// End, in microseconds since 1970.
    pub ended_us: u64,
    /// The attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// Spans of other traces that this one has to do with.
    pub links: Vec<SpanLink>,
    /// Why the span failed; `None` if it did not.
    pub failure: Option<String>,
}

/// A span of another trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpanLink {
    /// The trace.
    pub trace_id: String,
    /// The span.
    pub span_id: String,
}

impl ReceivedSpan {
    /// A span of a program with these attributes of its resource; `None` if it has no valid ids.
    pub(crate) fn read(resource: &[KeyValue], span: Span) -> Option<Self> {
        if span.trace_id.len() != 16 || span.span_id.len() != 8 {
            return None;
        }
        let failure = span
            .status
            .as_ref()
            .filter(|status| status.code() == StatusCode::Error)
            .map(|status| bounded(&status.message));
        Some(Self {
            trace_id: hex(&span.trace_id),
            span_id: hex(&span.span_id),
            parent_id: (!span.parent_span_id.is_empty()).then(|| hex(&span.parent_span_id)),
            service: attribute(resource, "service.name").unwrap_or_else(|| "unknown".into()),
            process_id: attribute(resource, "process.pid"),
            name: bounded(&span.name),
            kind: match span.kind() {
                SpanKind::Server => "server",
                SpanKind::Client => "client",
                SpanKind::Producer => "producer",
                SpanKind::Consumer => "consumer",
                SpanKind::Internal | SpanKind::Unspecified => "internal",
            },
            started_us: span.start_time_unix_nano / 1_000,
            ended_us: span.end_time_unix_nano / 1_000,
            attributes: span
                .attributes
                .iter()
                .map(|attribute| (bounded(&attribute.key), text(attribute.value.as_ref())))
                .collect(),
            links: span
                .links
                .iter()
                .map(|link| SpanLink { trace_id: hex(&link.trace_id), span_id: hex(&link.span_id) })
                .collect(),
            failure,
        })
    }
}

/// The text of an attribute of a resource, such as `service.name`.
fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    Some(text(found.value.as_ref()))
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => bounded(text),
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => value.to_string(),
        _ => String::new(),
    }
}

fn bounded(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
