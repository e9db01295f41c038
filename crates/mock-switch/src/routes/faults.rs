//! Applies scripted faults to requests.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use service_kit::problem::Problem;

use crate::behaviour::{Behaviour, HttpFault, Script};
use crate::book::requests::{self, Operation};
use crate::drop_connection::drop_connection;
use crate::error::RequestError;
use crate::plan::{self, Plan};
use crate::state::Switch;

/// Counts a request, and returns its plan and the scripted fault that applies to it, if any.
pub(super) async fn next_fault<F: Clone>(
    switch: &Switch,
    reference: &str,
    operation: Operation,
    amount_minor: Option<i64>,
    script: fn(&Behaviour) -> Option<&Script<F>>,
) -> Result<(Plan, Option<F>), RequestError> {
    let sandboxed = switch.config.sandbox_amounts;
    let plan = plan::load(&switch.pool, reference, amount_minor, sandboxed).await?;
    let scripted = plan.script(script);
    let behaviour_id = scripted.map(|(id, _)| id);
    let nth = requests::count(&switch.pool, reference, operation, behaviour_id).await?;
    let fault = scripted.and_then(|(_, script)| script.at(nth)).cloned();
    let operation = operation.as_str();
    let applies = if fault.is_some() { "yes" } else { "no" };
    metrics::counter!("mock_switch_requests_total", "operation" => operation, "fault" => applies)
        .increment(1);
    Ok((plan, fault))
}

/// Applies a fault of any request. Returns the response; after `None` the request is processed normally.
pub(super) async fn apply_http_fault(fault: &HttpFault) -> Option<Response> {
    let problem = match fault {
        HttpFault::DropRequest => return Some(drop_connection()),
        HttpFault::DelayMs(ms) => {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            return None;
        }
        HttpFault::Error400 => Problem::bad_request(
            "malformed_request",
            "the mock switch was scripted to answer with this fault",
        ),
        HttpFault::Unauthorized => {
            Problem::unauthorized("the mock switch was scripted to answer with this fault")
        }
        HttpFault::Error403 => Problem::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed")
            .detail("the mock switch was scripted to answer with this fault"),
        HttpFault::Error404 => Problem::missing("not_found", "there is nothing at this path"),
        HttpFault::TooManyRequests => too_many_requests(1),
        HttpFault::BusyS(seconds) => too_many_requests(*seconds),
        HttpFault::Error500 => {
            Problem::internal().detail("the mock switch was scripted to answer with this fault")
        }
        HttpFault::Error503 => Problem::unavailable("the mock switch was scripted to answer with this fault"),
    };
    Some(problem.into_response())
}

fn too_many_requests(retry_after_s: u64) -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", "Too many requests")
        .detail("the mock switch was scripted to answer with this fault")
        .retry_after(Duration::from_secs(retry_after_s))
}
