//! `POST /callbacks/{switch}`: a switch reports the end of a transfer, a return, where the money of a settled transfer is, or the answer to
//! a recall.
//!
//! A callback is verified on its raw body and stored before its workflow is signalled; 200 means stored. The switch retries a
//! callback after any other status, so a refusal loses nothing.

use crash_point::crash_point;
use openapi_kit::ProblemDocument;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_protocol::ids::{EventId, SwitchName};
use payment_protocol::recall::RecallReport;
use payment_protocol::report::{Incoming, IncomingReport};
use payment_protocol::returns::{PostingReport, ReturnReport};
use serde::Serialize;
use service_kit::problem::{Json, Path, Problem};
use switch_client::http_json::CallbackBody;
use trace_kit::{Span, SpanKind, TraceParent, attribute, span};
use utoipa::ToSchema;
use webhook_signature::{SignatureError, SignedHeaders};

use crate::app::{App, CallbackSource};
use crate::error::{ApiError, excerpt};
use crate::extract::RawBody;
use crate::request_span::trace_parent;
use crate::workflow_delivery::deliver_to_workflow;

/// Bytes of an unreadable body that are logged.
const EXCERPT_BYTES: usize = 256;

/// The callback is stored; do not retry it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallbackReceipt {
    /// Always true.
    stored: bool,
}

/// Report the end of a transfer, a return, a posting, or the answer to a recall
///
/// For switches. The request is signed according to Standard Webhooks, over the raw body; `webhook-id` is the same on every
/// retry. Retry after any status except 200.
#[utoipa::path(
    post, path = "/callbacks/{switch}", tag = "callbacks",
    params(
        ("switch" = String, Path, description = "Name of the switch, agreed with the bank"),
        ("webhook-id" = String, Header, description = "Id of the event, 1 to 64 characters of A-Z a-z 0-9 _ : -; the same on every retry"),
        ("webhook-timestamp" = String, Header, description = "Seconds since 1970"),
        ("webhook-signature" = String, Header, description = "v1,BASE64, several separated by spaces"),
    ),
    request_body = CallbackBody,
    responses(
        (status = 200, description = "The callback is stored, now or by an earlier request", body = CallbackReceipt),
        (status = 400, description = "unreadable_callback: the signature is valid, but the body is no event that the service knows",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 401, description = "invalid_signature: the signature could not be verified",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "unknown_switch: no switch has this name",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn receive_callback(
    State(app): State<Arc<App>>,
    Path(switch): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Result<Json<CallbackReceipt>, ApiError> {
    let received_at = SystemTime::now();
    let (switch, source) = find_switch(&app, &switch)?;

    // Nobody is waited for whose headers do not pass, and the body is not even parsed before its signature is verified.
    let now_s = Timestamp::now().as_second();
    let signed = SignedHeaders::read(&headers, now_s, app.callback_tolerance_s)
        .map_err(|reason| unverified(switch, &reason))?;
    let RawBody(body) = RawBody::from_request(request, &()).await?;
    let event_id = signed.verify(&source.secrets, &body).map_err(|reason| unverified(switch, &reason))?;
    let read = EventId::new(event_id.as_str())
        .map_err(|error| error.to_string())
        .and_then(|id| Ok((read(source, switch, &id, &body)?, id)));
    let (report, event_id) = read.map_err(|reason| {
        // With its line breaks escaped: a body must not look like a line of the log.
        let excerpt = String::from_utf8_lossy(&body[..body.len().min(EXCERPT_BYTES)]);
        tracing::error!(switch = %switch, reason, body = ?excerpt, "the payments-api refused a switch's correctly signed callback because its body could not be parsed");
        count(switch, "unreadable");
        Problem::bad_request("unreadable_callback", format!("the callback body cannot be parsed: {reason}"))
    })?;

    let span = callback_span(&app, switch, &event_id, &report, &headers, received_at).await;
    let outcome = span.run(store_and_deliver(&app, switch, &event_id, &report, &body)).await;
    match &outcome {
        Ok(outcome) => span.set(attribute::OUTCOME, *outcome),
        Err(_) => span.fail("the callback is not stored; the switch repeats it"),
    }
    count(switch, outcome?);
    Ok(Json(CallbackReceipt { stored: true }))
}

fn unverified(switch: &SwitchName, reason: &SignatureError) -> Problem {
    tracing::warn!(switch = %switch, %reason, "the payments-api refused a switch's callback because its signature could not be verified");
    count(switch, "invalid_signature");
    Problem::new(StatusCode::UNAUTHORIZED, "invalid_signature", "Invalid signature").detail(format!(
        "the callback's signature could not be verified: {reason}; sign the raw body with a current secret"
    ))
}

/// The callback as a span of its payment's trace, whatever position in a trace the switch named.
async fn callback_span(
    app: &App,
    switch: &SwitchName,
    event_id: &EventId,
    report: &Report,
    headers: &HeaderMap,
    received_at: SystemTime,
) -> Span {
    let stored = app.ledger.trace_parent_of_transfer(switch, report.reference());
    let position = TraceParent::stored(stored).await;
    span(SpanKind::Server, "POST /callbacks/{switch}")
        .child_of(position.as_ref())
        .linked_to(trace_parent(headers).as_ref())
        .started_at(received_at)
        .with(attribute::SWITCH, switch.to_string())
        .with(attribute::MESSAGE_ID, event_id.to_string())
        .with("payment.callback_status", report.status())
        .start()
}

/// Stores the report and delivers its message, if it has one; returns the outcome as a label.
async fn store_and_deliver(
    app: &App,
    switch: &SwitchName,
    event_id: &EventId,
    report: &Report,
    body: &[u8],
) -> Result<&'static str, ApiError> {
    crash_point("before storing a callback");
    let stored = match report {
        Report::End(callback) => app.ledger.store_callback(callback).await?,
        Report::Return(report) => app.ledger.store_return(event_id, report, body).await?,
        Report::Posting(report) => app.ledger.store_posting(switch, event_id, report, body).await?,
        Report::Recall(report) => app.ledger.store_recall_answer(switch, event_id, report, body).await?,
    };
    crash_point("after storing a callback");
    Ok(match stored {
        StoreCallbackOutcome::New(message) => {
            if let Some(message) = message {
                deliver_to_workflow(app, &message).await;
            }
            "stored"
        }
        StoreCallbackOutcome::Duplicate => "duplicate",
        StoreCallbackOutcome::CallbackEventIdReused => "callback_event_id_reused",
    })
}

fn find_switch<'a>(app: &'a App, name: &str) -> Result<(&'a SwitchName, &'a CallbackSource), Problem> {
    let entry = SwitchName::new(name).ok().and_then(|name| app.callback_sources.get_key_value(&name));
    entry.ok_or_else(|| {
        Problem::missing(
            "unknown_switch",
            format!("no switch is named {}; check the path of the URL", excerpt(name)),
        )
    })
}

/// A report of a switch, read in its own format.
enum Report {
    End(Callback),
    Return(ReturnReport),
    Posting(PostingReport),
    Recall(RecallReport),
}

impl Report {
    /// The status as a word, for spans.
    fn status(&self) -> &'static str {
        match self {
            Self::End(callback) => callback.status.as_str(),
            Self::Return(_) => "RETURN",
            Self::Posting(_) => "POSTING",
            Self::Recall(_) => "RECALL",
        }
    }

    fn reference(&self) -> &str {
        match self {
            Self::End(callback) => &callback.reference,
            Self::Return(report) => &report.reference,
            Self::Posting(report) => &report.reference,
            Self::Recall(report) => &report.reference,
        }
    }
}

/// Reads a verified body in the switch's own format.
///
/// # Errors
/// Why the body is not a report that the service knows.
fn read(
    source: &CallbackSource,
    switch: &SwitchName,
    event_id: &EventId,
    body: &[u8],
) -> Result<Report, String> {
    Ok(match source.reports.read(switch, body)? {
        Incoming::Return(report) => Report::Return(report),
        Incoming::Posting(report) => Report::Posting(report),
        Incoming::Recall(report) => Report::Recall(report),
        Incoming::End(IncomingReport {
            reference,
            status,
            amount_minor,
            currency,
            reason,
            reason_code,
            posting,
        }) => Report::End(Callback {
            switch: switch.clone(),
            event_id: event_id.clone(),
            reference,
            status,
            amount_minor,
            currency,
            reason,
            reason_code,
            posting,
            body: body.to_vec(),
        }),
    })
}

fn count(switch: &SwitchName, outcome: &'static str) {
    metrics::counter!("switch_callbacks_total", "switch" => switch.to_string(), "outcome" => outcome)
        .increment(1);
}

/// Initializes counters used by alerts with 0: `increase` does not see the first increment of a new counter.
pub(crate) fn initialize_metrics<'a>(switches: impl Iterator<Item = &'a SwitchName>) {
    for switch in switches {
        for outcome in ["invalid_signature", "unreadable"] {
            metrics::counter!("switch_callbacks_total", "switch" => switch.to_string(), "outcome" => outcome)
                .increment(0);
        }
    }
    for limit in ["all", "address"] {
        for from in ["clients", "switches"] {
            metrics::counter!("api_overloaded_total", "from" => from, "limit" => limit).increment(0);
        }
        metrics::counter!("http_connections_refused_total", "limit" => limit).increment(0);
    }
}
