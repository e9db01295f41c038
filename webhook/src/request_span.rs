//! The spans and the duration of each request: a span of the log, and one of the distributed trace.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use payment_ledger::Ledger;
use payment_protocol::ids::PaymentId;
use service_kit::requests::{self, MeasuredRequest, method, route};
use trace_kit::{SpanKind, TRACEPARENT, TRACERESPONSE, TraceParent, attribute, span};
use tracing::Instrument as _;
use tracing::field::Empty;

/// Routes whose requests are spans of a trace. A callback is one too, but of its payment's trace: its handler records it.
const TRACED: &str = "/api/";

/// Records the duration of the request.
pub(crate) async fn record_duration(request: Request, next: Next) -> Response {
    let (response, MeasuredRequest { method, route, status, duration }) =
        requests::measure(request, next).await;
    metrics::histogram!("http_request_duration_seconds", "method" => method, "route" => route, "status" => status)
        .record(duration);
    response
}

/// Wraps the request in a span. Handlers add `api_key.id`, `idempotency.key` and `payment.id`.
pub(crate) async fn record_request(request: Request, next: Next) -> Response {
    let method = method(request.method());
    let route = route(&request);
    if route.starts_with(TRACED) {
        run_in_trace(request, next, method, &route).await
    } else {
        run(request, next, method, &route).await
    }
}

/// Continues the caller's trace, or begins one. A read begins none: clients that poll would bury the traces of payments. The
/// response names the position of the request in its trace.
async fn run_in_trace(request: Request, next: Next, method: &'static str, route: &str) -> Response {
    let caller = trace_parent(request.headers());
    let span = span(SpanKind::Server, format!("{method} {route}"));
    let span = match method {
        "GET" | "HEAD" => span.child_of(caller.as_ref()),
        _ => span.continue_or_begin(caller.as_ref()),
    };
    let span =
        span.with(attribute::HTTP_METHOD, method).with(attribute::HTTP_ROUTE, route.to_owned()).start();
    let mut response = span.run(run(request, next, method, route)).await;
    span.set(attribute::HTTP_STATUS, i64::from(response.status().as_u16()));
    if response.status().is_server_error() {
        span.fail("the request failed in the service");
    }
    let position = span.trace_parent().and_then(|position| HeaderValue::try_from(position.to_string()).ok());
    if let Some(position) = position {
        response.headers_mut().insert(TRACERESPONSE, position);
    }
    response
}

async fn run(request: Request, next: Next, method: &'static str, route: &str) -> Response {
    let span = tracing::info_span!(
        "request",
        http.method = method,
        http.route = route,
        request.id =
            request.headers().get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default(),
        trace.id = TraceParent::current().map(|position| position.trace_id()),
        api_key.id = Empty,
        idempotency.key = Empty,
        payment.id = Empty,
    );
    next.run(request).instrument(span).await
}

/// The caller's position in a trace. Of two headers neither counts.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => TraceParent::parse(value.to_str().ok()?),
        _ => None,
    }
}

/// Leads from the trace of a later request to the payment's own. Without the link, the payment's id still finds it.
pub(crate) async fn link_to_payment(ledger: &Ledger, payment_id: &PaymentId) {
    if let Some(position) = TraceParent::stored(ledger.trace_parent(payment_id)).await {
        trace_kit::link_current_to(&position);
    }
}

/// Names the payment of the request, in the log and in the trace.
pub(crate) fn record_payment(payment_id: &str) {
    tracing::Span::current().record("payment.id", payment_id);
    trace_kit::set_on_current(attribute::PAYMENT_ID, payment_id.to_owned());
}
