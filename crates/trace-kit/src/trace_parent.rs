//! The `traceparent` header of W3C Trace Context.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};

use crate::is_exporting;

/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// A position in a trace: the trace, one of its spans, and whether the trace is recorded. The vendor-specific `tracestate` is
/// not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent(SpanContext);

impl TraceParent {
    /// Parses `00-{trace id}-{span id}-{flags}`; `None` if the text is anything else. Of a later version the first four fields
    /// count, as the specification requires.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_lower_hex =
            |field: &str| field.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let known = text.get(..LENGTH)?;
        let rest = text.get(LENGTH..)?;
        let fields: Vec<&str> = known.split('-').collect();
        let [version, trace_id, span_id, flags] = fields.as_slice() else { return None };
        let has_lengths = (version.len(), trace_id.len(), span_id.len(), flags.len()) == (2, 32, 16, 2);
        if !has_lengths || !fields.iter().all(|field| is_lower_hex(field)) || *version == "ff" {
            return None;
        }
        if *version == "00" && !rest.is_empty() || !rest.is_empty() && !rest.starts_with('-') {
            return None;
        }
        let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
        let trace_id = TraceId::from_hex(trace_id).ok()?;
        let span_id = SpanId::from_hex(span_id).ok()?;
        Self::of(&SpanContext::new(trace_id, span_id, flags, true, TraceState::NONE))
    }

    /// The position of the current span; `None` outside a span. Without an exporter it is the position that was received.
    #[must_use]
    pub fn current() -> Option<Self> {
        Self::of(Context::current().span().span_context())
    }

    /// The position that `read` finds in a store. Without an exporter it is not read, and a failed read finds none: a trace must not
    /// fail what it traces.
    pub async fn stored<E>(read: impl Future<Output = Result<Option<String>, E>>) -> Option<Self> {
        if is_exporting() { Self::parse(&read.await.ok()??) } else { None }
    }

    pub(crate) fn of(context: &SpanContext) -> Option<Self> {
        context.is_valid().then(|| Self(context.clone()))
    }

    pub(crate) fn span_context(&self) -> &SpanContext {
        &self.0
    }

    /// The trace, as 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> String {
        self.0.trace_id().to_string()
    }
}

impl std::fmt::Display for TraceParent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(context) = self;
        write!(f, "00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags().to_u8())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_traceparent_is_read_and_written_unchanged() {
        for text in [EXAMPLE, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"] {
            assert_eq!(TraceParent::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(TraceParent::parse(EXAMPLE).unwrap().trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
    }

    #[test]
    fn a_later_version_is_read_by_its_first_four_fields() {
        let later = EXAMPLE.replacen("00", "cc", 1) + "-what-the-future-adds";
        assert_eq!(TraceParent::parse(&later).unwrap().to_string(), EXAMPLE);
        assert_eq!(TraceParent::parse(&EXAMPLE.replacen("00", "cc", 1)).unwrap().to_string(), EXAMPLE);
    }

    #[test]
    fn anything_else_is_no_traceparent() {
        let all_zero = |n: usize| "0".repeat(n);
        let refused = [
            String::new(),
            "00".into(),
            EXAMPLE.to_uppercase(),
            EXAMPLE.replacen("00", "ff", 1),
            EXAMPLE.replace('-', "_"),
            format!("{EXAMPLE}-extra"),
            EXAMPLE.replacen("00", "cc", 1) + "extra",
            EXAMPLE[..54].into(),
            EXAMPLE.replacen("4bf92f3577b34da6a3ce929d0e0e4736", &all_zero(32), 1),
            EXAMPLE.replacen("00f067aa0ba902b7", &all_zero(16), 1),
            EXAMPLE.replacen("4bf9", "xyzw", 1),
            EXAMPLE.replacen("4bf9", "4bé", 1),
        ];
        for text in refused {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
