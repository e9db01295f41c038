//! Spans, and the current span of a task.

use std::borrow::Cow;
use std::cell::Cell;
use std::time::SystemTime;

use opentelemetry::trace::{
    FutureExt as _, Link, SpanBuilder, SpanId, SpanKind, Status, TraceContextExt as _, TraceId, Tracer as _,
};
use opentelemetry::{Context, KeyValue, Value, global};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use crate::trace_parent::TraceParent;
use crate::{attribute, is_exporting};

const SCOPE: &str = "payment-service";

/// A span that has not started.
#[must_use]
pub struct NewSpan {
    builder: SpanBuilder,
    /// `None`: nothing is recorded.
    parent: Option<Context>,
    id: Option<[u8; 8]>,
}

/// A span of this name, a child of the task's current one. Without a current one nothing is recorded.
pub fn span(kind: SpanKind, name: impl Into<Cow<'static, str>>) -> NewSpan {
    let builder = SpanBuilder::from_name(name).with_kind(kind);
    NewSpan { builder, parent: Some(Context::current()).filter(Context::has_active_span), id: None }
}

impl NewSpan {
    /// The span begins a trace, or continues that of `caller`.
    pub fn continue_or_begin(mut self, caller: Option<&TraceParent>) -> Self {
        self.parent = Some(remote(caller).unwrap_or_default());
        self
    }

    /// The span is a child of `parent`. Without one nothing is recorded: a payment that was accepted without a trace has none.
    pub fn child_of(mut self, parent: Option<&TraceParent>) -> Self {
        self.parent = remote(parent);
        self
    }

    /// Names a span of another trace that this one has to do with.
    pub fn linked_to(mut self, other: Option<&TraceParent>) -> Self {
        if let Some(other) = other {
            let links = self.builder.links.get_or_insert_default();
            links.push(Link::with_context(other.span_context().clone()));
        }
        self
    }

    /// Adds an attribute.
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.builder.attributes.get_or_insert_default().push(KeyValue::new(key, value));
        self
    }

    /// Adds [`attribute::KEY_HASH`]: the hash of an idempotency key's scope and the key, which is not computed in vain.
    pub fn with_key(self, parts: &[&str]) -> Self {
        if self.parent.is_some() && is_exporting() {
            self.with(attribute::KEY_HASH, attribute::key_hash(parts))
        } else {
            self
        }
    }

    /// The span started earlier than now.
    pub fn started_at(mut self, at: SystemTime) -> Self {
        self.builder.start_time = Some(at);
        self
    }

    /// Gives the span an id instead of a random one: a span that is recorded again has the same one.
    pub fn with_id(mut self, id: [u8; 8]) -> Self {
        self.id = Some(id);
        self
    }

    /// Starts the span. It ends when the value is dropped.
    pub fn start(self) -> Span {
        let Some(parent) = self.parent else { return Span { context: None } };
        GIVEN_ID.set(self.id);
        let span = global::tracer(SCOPE).build_with_context(self.builder, &parent);
        GIVEN_ID.set(None);
        Span { context: Some(parent.with_span(span)) }
    }
}

fn remote(parent: Option<&TraceParent>) -> Option<Context> {
    parent.map(|parent| Context::new().with_remote_span_context(parent.span_context().clone()))
}

/// A span under way; it ends when it is dropped.
#[derive(Debug)]
pub struct Span {
    context: Option<Context>,
}

impl Span {
    /// Adds an attribute.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        if let Some(context) = &self.context {
            context.span().set_attribute(KeyValue::new(key, value));
        }
    }

    /// Marks the span as failed.
    pub fn fail(&self, reason: impl Into<Cow<'static, str>>) {
        if let Some(context) = &self.context {
            context.span().set_status(Status::error(reason));
        }
    }

    /// Position of the span in its trace; `None` if nothing is recorded.
    #[must_use]
    pub fn trace_parent(&self) -> Option<TraceParent> {
        TraceParent::of(self.context.as_ref()?.span().span_context())
    }

    /// Runs `work` with this span as its current one.
    pub async fn run<F: Future>(&self, work: F) -> F::Output {
        work.with_context(self.context.clone().unwrap_or_default()).await
    }

    /// Ends the span at another time than now.
    pub fn end_at(self, at: SystemTime) {
        if let Some(context) = &self.context {
            context.span().end_with_timestamp(at);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(context) = &self.context {
            context.span().end();
        }
    }
}

/// Names a span of another trace that the task's current span has to do with.
pub fn link_current_to(other: &TraceParent) {
    Context::current().span().add_link(other.span_context().clone(), Vec::new());
}

/// As [`NewSpan::with_key`], for the task's current span.
pub fn set_key_on_current(parts: &[&str]) {
    if is_exporting() {
        set_on_current(attribute::KEY_HASH, attribute::key_hash(parts));
    }
}

/// Adds an attribute to the task's current span, if there is one.
pub fn set_on_current(key: &'static str, value: impl Into<Value>) {
    Context::current().span().set_attribute(KeyValue::new(key, value));
}

thread_local! {
    /// Id of the span that this thread starts now; `None` for a random one.
    static GIVEN_ID: Cell<Option<[u8; 8]>> = const { Cell::new(None) };
}

/// Random ids, except where a span was given its own.
#[derive(Debug, Default)]
pub(crate) struct SpanIds(RandomIdGenerator);

impl IdGenerator for SpanIds {
    fn new_trace_id(&self) -> TraceId {
        self.0.new_trace_id()
    }

    fn new_span_id(&self) -> SpanId {
        match GIVEN_ID.get().map(SpanId::from_bytes) {
            Some(id) if id != SpanId::INVALID => id,
            _ => self.0.new_span_id(),
        }
    }
}
