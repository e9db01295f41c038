//! How a scripted fault meets a request.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use service_kit::problem::Problem;

use crate::behaviour::{self, Behaviour, HttpFault, Plan, Script};
use crate::book::requests::{self, Operation};
use crate::cut::cut;
use crate::error::Failure;
use crate::switch::Switch;

/// Counts a request and finds the fault it meets, if it meets one.
pub(super) async fn meet<F: Clone>(
    switch: &Switch,
    reference: &str,
    operation: Operation,
    amount_minor: Option<i64>,
    script: fn(&Behaviour) -> Option<&Script<F>>,
) -> Result<(Plan, Option<F>), Failure> {
    let sandboxed = switch.config.sandbox_amounts;
    let plan = behaviour::load(&switch.pool, reference, amount_minor, sandboxed).await?;
    let found = plan.script(script);
    let behaviour_id = found.map(|(id, _)| id);
    let nth = requests::count(&switch.pool, reference, operation, behaviour_id).await?;
    let fault = found.and_then(|(_, script)| script.at(nth)).cloned();
    let operation = operation.as_str();
    let met = if fault.is_some() { "yes" } else { "no" };
    metrics::counter!("mock_switch_requests_total", "operation" => operation, "fault" => met).increment(1);
    Ok((plan, fault))
}

/// Lets a fault happen that any request can meet. What it returns is the
/// answer; after `None` the request goes on as usual.
pub(super) async fn suffer(fault: &HttpFault) -> Option<Response> {
    let problem = match fault {
        HttpFault::DropRequest => return Some(cut()),
        HttpFault::DelayMs(ms) => {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            return None;
        }
        HttpFault::Error400 => Problem::bad_request("malformed_request", "scripted"),
        HttpFault::Unauthorized => Problem::unauthorized("scripted"),
        HttpFault::Error403 => {
            Problem::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed").detail("scripted")
        }
        HttpFault::Error404 => Problem::missing("not_found", "there is nothing at this path"),
        HttpFault::TooManyRequests => busy(1),
        HttpFault::BusyS(seconds) => busy(*seconds),
        HttpFault::Error500 => Problem::internal().detail("scripted"),
        HttpFault::Error503 => Problem::unavailable("scripted"),
    };
    Some(problem.into_response())
}

fn busy(retry_after_s: u64) -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", "Too many requests")
        .detail("scripted")
        .retry_after(Duration::from_secs(retry_after_s))
}
