//! Spans of a payment's steps: each attempt at an activity, the start of a workflow, and the workflow as a whole.
//!
//! The parent of each is the position that the payment's row has, not another span: a killed worker exports nothing, and what
//! another worker carries on must not hang from what was never exported. The start of the workflow carries the position in a header,
//! and the workflow gives it to each activity: no step reads it from the database. Nothing is recorded while a workflow is
//! replayed. Registered only where traces are exported.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::SystemTime;

use payment_protocol::ids::PaymentId;
use payment_protocol::keys;
use sha2::{Digest as _, Sha256};
use temporalio_common::protos::temporal::api::common::v1::{Header, Payload};
use temporalio_sdk::WorkflowContextView;
use temporalio_sdk::interceptors::{
    ActivityInboundInterceptor, ExecuteActivityInput, ExecuteActivityOutput, Next,
};
use temporalio_sdk::workflow_interceptors::{
    CancellableWorkflowOutboundFuture, ExecuteWorkflowInput, ExecuteWorkflowResult, InitializeWorkflowInput,
    InitializeWorkflowOutput, ScheduleActivityInput, ScheduleActivityResult, ScheduleLocalActivityInput,
    WorkflowInterceptor, WorkflowInterceptorConstructor, WorkflowInterceptorContext,
    WorkflowInterceptorFuture, WorkflowNext,
};
use trace_kit::{Span, SpanKind, TRACEPARENT, TraceParent, attribute, is_exporting, span};

use crate::activities::failure_kind;

/// Temporal's header for a trace context, the same in its SDKs of all languages.
const TRACE_HEADER: &str = "_tracer-data";

/// The span of one start, and the header that carries the payment's position to its workflow. Without an exporter neither.
pub(crate) fn start_span(
    trace_parent: Option<&str>,
    payment_id: &PaymentId,
    workflow_id: &str,
) -> (Span, Option<Header>) {
    let position = trace_parent.filter(|_| is_exporting()).and_then(TraceParent::parse);
    let span = span(SpanKind::Client, "start workflow")
        .child_of(position.as_ref())
        .with(attribute::PAYMENT_ID, payment_id.to_string())
        .with(attribute::WORKFLOW_ID, workflow_id.to_owned())
        .start();
    let header = position.map(|position| Header {
        fields: HashMap::from([(TRACE_HEADER.to_owned(), trace_header(&position))]),
    });
    (span, header)
}

fn trace_header(position: &TraceParent) -> Payload {
    Payload {
        metadata: HashMap::from([("encoding".to_owned(), b"json/plain".to_vec())]),
        data: serde_json::json!({ TRACEPARENT: position.to_string() }).to_string().into_bytes(),
        ..Payload::default()
    }
}

fn position_in(headers: &HashMap<String, Payload>) -> Option<TraceParent> {
    let carrier: HashMap<String, String> = serde_json::from_slice(&headers.get(TRACE_HEADER)?.data).ok()?;
    TraceParent::parse(carrier.get(TRACEPARENT)?)
}

/// A span for each attempt at an activity of a payment.
pub(crate) struct ActivitySpans;

impl ActivityInboundInterceptor for ActivitySpans {
    fn execute_activity<'a>(
        &'a self,
        input: ExecuteActivityInput,
        next: Next<'a, ExecuteActivityInput, ExecuteActivityOutput<'a>>,
    ) -> ExecuteActivityOutput<'a> {
        let Some(position) = position_in(input.headers()) else { return next.run(input) };
        let info = input.activity_info();
        let mut span = span(SpanKind::Internal, info.activity_type.clone())
            .child_of(Some(&position))
            .with(attribute::RUN_ID, info.workflow_run_id.clone().unwrap_or_default())
            .with(attribute::ATTEMPT, i64::from(info.attempt));
        if let Some(payment_id) = info.workflow_id.as_deref().and_then(keys::payment_of_workflow) {
            span = span.with(attribute::PAYMENT_ID, payment_id.to_string());
        }
        Box::pin(async move {
            let span = span.start();
            let result = span.run(next.run(input)).await;
            if let Err(error) = &result {
                span.fail(failure_kind(error));
            }
            result
        })
    }
}

/// A span for each run of a payment's workflow, recorded by the worker that ends the run.
pub(crate) fn workflow_spans() -> WorkflowInterceptorConstructor {
    WorkflowInterceptorConstructor::new(|_: &WorkflowContextView| WorkflowSpan::default())
}

#[derive(Default)]
struct WorkflowSpan {
    position: RefCell<Option<TraceParent>>,
}

impl WorkflowSpan {
    fn add_position(&self, headers: &mut HashMap<String, Payload>) {
        if let Some(position) = &*self.position.borrow() {
            headers.insert(TRACE_HEADER.to_owned(), trace_header(position));
        }
    }
}

impl WorkflowInterceptor for WorkflowSpan {
    fn initialize_workflow(
        &self,
        _ctx: WorkflowContextView,
        input: InitializeWorkflowInput,
        next: WorkflowNext<'_, InitializeWorkflowInput, InitializeWorkflowOutput>,
    ) -> InitializeWorkflowOutput {
        self.position.replace(position_in(input.headers()));
        next.run(input)
    }

    fn schedule_activity(
        &self,
        _ctx: WorkflowInterceptorContext,
        mut input: ScheduleActivityInput,
        next: WorkflowNext<
            'static,
            ScheduleActivityInput,
            CancellableWorkflowOutboundFuture<ScheduleActivityResult>,
        >,
    ) -> CancellableWorkflowOutboundFuture<ScheduleActivityResult> {
        self.add_position(input.headers_mut());
        next.run(input)
    }

    fn schedule_local_activity(
        &self,
        _ctx: WorkflowInterceptorContext,
        mut input: ScheduleLocalActivityInput,
        next: WorkflowNext<
            'static,
            ScheduleLocalActivityInput,
            CancellableWorkflowOutboundFuture<ScheduleActivityResult>,
        >,
    ) -> CancellableWorkflowOutboundFuture<ScheduleActivityResult> {
        self.add_position(input.headers_mut());
        next.run(input)
    }

    fn execute<'a>(
        &'a self,
        ctx: WorkflowInterceptorContext,
        input: ExecuteWorkflowInput,
        next: WorkflowNext<'a, ExecuteWorkflowInput, WorkflowInterceptorFuture<'a, ExecuteWorkflowResult>>,
    ) -> WorkflowInterceptorFuture<'a, ExecuteWorkflowResult> {
        let Some(position) = self.position.borrow().clone() else { return next.run(input) };
        WorkflowInterceptorFuture::new(async move {
            // Workflow time: a run whose last task is executed again records the same span, under the same id.
            let started_at = ctx.workflow_time();
            let result = next.run(input).await;
            if !ctx.is_replaying_history_events() {
                record_run(&ctx, &position, started_at, &result);
            }
            result
        })
    }
}

fn record_run(
    ctx: &WorkflowInterceptorContext,
    position: &TraceParent,
    started_at: Option<SystemTime>,
    result: &ExecuteWorkflowResult,
) {
    let (Some(started_at), Some(ended_at)) = (started_at, ctx.workflow_time()) else { return };
    let span = span(SpanKind::Internal, ctx.workflow_type().to_owned())
        .child_of(Some(position))
        .with_id(span_id(ctx.run_id()))
        .started_at(started_at)
        .with(attribute::WORKFLOW_ID, ctx.workflow_id().to_owned())
        .with(attribute::RUN_ID, ctx.run_id().to_owned())
        .start();
    if result.is_err() {
        span.fail("the payment did not settle");
    }
    span.end_at(ended_at);
}

/// The id of a run's span.
fn span_id(run_id: &str) -> [u8; 8] {
    let hash: [u8; 32] = Sha256::digest(run_id.as_bytes()).into();
    std::array::from_fn(|n| hash[n])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflow_reads_the_position_that_its_start_wrote() {
        let position = TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        let headers = |payload| HashMap::from([(TRACE_HEADER.to_owned(), payload)]);
        assert_eq!(position_in(&headers(trace_header(&position))), Some(position));
        assert_eq!(position_in(&HashMap::new()), None);
        let foreign = Payload { data: b"[]".to_vec(), ..Payload::default() };
        assert_eq!(position_in(&headers(foreign)), None);
    }
}
