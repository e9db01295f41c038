//! Spans of a payment's steps: each attempt at an activity, the start of a workflow, and the workflow as a whole.
//!
//! The parent of each is the position that the payment's row has, not another span: a killed worker exports nothing, and what
//! another worker carries on must not hang from what was never exported. Nothing is recorded while a workflow is replayed.
//! Registered only where traces are exported.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use payment_ledger::Ledger;
use payment_protocol::ids::PaymentId;
use payment_protocol::keys;
use sha2::{Digest as _, Sha256};
use temporalio_common::protos::temporal::api::common::v1::{Header, Payload};
use temporalio_sdk::WorkflowContextView;
use temporalio_sdk::interceptors::{
    ActivityInboundInterceptor, ExecuteActivityInput, ExecuteActivityOutput, Next,
};
use temporalio_sdk::workflow_interceptors::{
    ExecuteWorkflowInput, ExecuteWorkflowResult, InitializeWorkflowInput, InitializeWorkflowOutput,
    WorkflowInterceptor, WorkflowInterceptorConstructor, WorkflowInterceptorContext,
    WorkflowInterceptorFuture, WorkflowNext,
};
use trace_kit::{Span, SpanKind, TRACEPARENT, TraceParent, attribute, span};
use workflow_api::WORKFLOW_TYPE;

use crate::activities::failure_kind;

/// Payments whose position is kept in memory; a full map is cleared, and the positions are read again.
const POSITIONS_MAX: usize = 10_000;
/// Temporal's header for a trace context, the same in its SDKs of all languages.
const TRACE_HEADER: &str = "_tracer-data";

/// The positions of payments in their traces, read from the ledger once in a process.
pub(crate) struct PaymentTraces {
    ledger: Ledger,
    positions: Mutex<HashMap<PaymentId, Option<TraceParent>>>,
}

impl PaymentTraces {
    /// `None` where no traces are exported.
    pub(crate) fn start(ledger: &Ledger) -> Option<Arc<Self>> {
        trace_kit::is_exporting()
            .then(|| Arc::new(Self { ledger: ledger.clone(), positions: Mutex::default() }))
    }

    /// The payment's position; `None` if it has none, or if it cannot be read now, which is
    /// not remembered.
    pub(crate) async fn of(&self, payment_id: &PaymentId) -> Option<TraceParent> {
        if let Some(known) = self.positions().get(payment_id) {
            return known.clone();
        }
        let stored = self.ledger.trace_parent(payment_id).await.ok()?;
        let position = stored.as_deref().and_then(TraceParent::parse);
        let mut positions = self.positions();
        if positions.len() >= POSITIONS_MAX {
            positions.clear();
        }
        positions.insert(payment_id.clone(), position.clone());
        position
    }

    fn positions(&self) -> std::sync::MutexGuard<'_, HashMap<PaymentId, Option<TraceParent>>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The span of one start, and the header that carries the payment's position to its workflow.
pub(crate) async fn start_span(
    traces: Option<&PaymentTraces>,
    payment_id: &PaymentId,
    workflow_id: &str,
) -> (Span, Option<Header>) {
    let position = match traces {
        Some(traces) => traces.of(payment_id).await,
        None => None,
    };
    let span = span(SpanKind::Client, "start workflow")
        .child_of(position.as_ref())
        .with(attribute::PAYMENT_ID, payment_id.to_string())
        .with(attribute::WORKFLOW_ID, workflow_id.to_owned())
        .start();
    (span, position.as_ref().map(trace_header))
}

fn trace_header(position: &TraceParent) -> Header {
    let payload = Payload {
        metadata: HashMap::from([("encoding".to_owned(), b"json/plain".to_vec())]),
        data: serde_json::json!({ TRACEPARENT: position.to_string() }).to_string().into_bytes(),
        ..Payload::default()
    };
    Header { fields: HashMap::from([(TRACE_HEADER.to_owned(), payload)]) }
}

fn position_in(headers: &HashMap<String, Payload>) -> Option<TraceParent> {
    let carrier: HashMap<String, String> = serde_json::from_slice(&headers.get(TRACE_HEADER)?.data).ok()?;
    TraceParent::parse(carrier.get(TRACEPARENT)?)
}

/// A span for each attempt at an activity of a payment.
pub(crate) struct ActivitySpans(pub(crate) Arc<PaymentTraces>);

impl ActivityInboundInterceptor for ActivitySpans {
    #[expect(clippy::disallowed_methods, reason = "an activity is not workflow code: it may read the clock")]
    fn execute_activity<'a>(
        &'a self,
        input: ExecuteActivityInput,
        next: Next<'a, ExecuteActivityInput, ExecuteActivityOutput<'a>>,
    ) -> ExecuteActivityOutput<'a> {
        let started_at = SystemTime::now();
        let info = input.activity_info();
        let is_payment = info.workflow_type.as_deref() == Some(WORKFLOW_TYPE);
        let workflow_id = info.workflow_id.as_deref().filter(|_| is_payment);
        let Some(payment_id) = workflow_id.and_then(keys::payment_of_workflow) else {
            return next.run(input);
        };
        let span = span(SpanKind::Internal, info.activity_type.clone())
            .started_at(started_at)
            .with(attribute::PAYMENT_ID, payment_id.to_string())
            .with(attribute::RUN_ID, info.workflow_run_id.clone().unwrap_or_default())
            .with(attribute::ATTEMPT, i64::from(info.attempt));
        Box::pin(async move {
            let span = span.child_of(self.0.of(&payment_id).await.as_ref()).start();
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
        assert_eq!(position_in(&trace_header(&position).fields), Some(position));
        assert_eq!(position_in(&HashMap::new()), None);
        let foreign = Payload { data: b"[]".to_vec(), ..Payload::default() };
        assert_eq!(position_in(&HashMap::from([(TRACE_HEADER.to_owned(), foreign)])), None);
    }
}
