//! `POST /callbacks/{switch}`: what a switch says of a transfer.
//!
//! Verified on the raw body, stored, and only then is the workflow told; 200 means stored. Whatever does
//! not end in 200 the switch sends again, so nothing is lost by refusing it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use payment_ledger::switch::callbacks::{Callback, CallbackStatus, StoreCallbackOutcome};
use payment_protocol::ids::{EventId, SwitchName};
use payment_protocol::inbox::CallbackStatus;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem};
use service_kit::signature::{self, Secret};
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, excerpt};
use crate::extract::RawBody;
use crate::notify::notify;
use crate::routes::docs::ProblemDocument;
use crate::whole::whole;

/// The one type of event that is understood: how a transfer ended.
const TRANSFER_COMPLETED: &str = "transfer.completed";
/// Bytes of an unreadable body that go into the log.
const EXCERPT_BYTES: usize = 256;

/// Body of a callback. A switch may add fields.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = json!({"type": "transfer.completed", "reference": "tx_0123456789abcdef01234567:submit",
    "status": "SUCCESS", "amount_minor": 1250, "currency": "EUR", "occurred_at": "2026-01-01T12:00:00Z"}))]
pub(crate) struct CallbackBody {
    /// Always `transfer.completed`.
    r#type: String,
    /// Our reference of the transfer.
    reference: String,
    status: Status,
    /// Amount of the transfer, in minor units.
    #[serde(deserialize_with = "whole")]
    amount_minor: i64,
    /// ISO 4217 code.
    currency: String,
    /// The switch's words, mostly for a failure.
    #[serde(default)]
    reason: Option<String>,
}

/// How the transfer ended, says the switch.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
enum Status {
    Success,
    Failure,
}

/// The callback is stored; do not send it again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Receipt {
    /// Always true.
    stored: bool,
}

/// Report the end of a transfer
///
/// For switches. Signed as Standard Webhooks has it, over the raw body; `webhook-id` is the same on every
/// retry. Any answer but 200 means: send it again.
#[utoipa::path(
    post, path = "/callbacks/{switch}", tag = "callbacks",
    params(
        ("switch" = String, Path, description = "The switch's name in our configuration"),
        ("webhook-id" = String, Header, description = "Id of the event, 1 to 64 characters of A-Z a-z 0-9 _ : -"),
        ("webhook-timestamp" = String, Header, description = "Seconds since 1970"),
        ("webhook-signature" = String, Header, description = "v1,BASE64, several separated by spaces"),
    ),
    request_body = CallbackBody,
    responses(
        (status = 200, description = "Stored, now or before", body = Receipt),
        (status = 400, description = "unreadable_callback: authentic, but not a report of a transfer's end",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 401, description = "invalid_signature",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "unknown_switch",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn take_callback(
    State(app): State<Arc<App>>,
    Path(switch): Path<String>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Json<Receipt>, ApiError> {
    let (switch, secrets) = find_switch(&app, &switch)?;

    // Nothing of a body is believed, or even parsed, before its signature.
    let now_s = Timestamp::now().as_second();
    let event_id =
        signature::verify(secrets, &headers, &body, now_s, app.callback_tolerance_s).map_err(|reason| {
            tracing::warn!(switch = %switch, %reason, "a callback was not believed");
            count(switch, "not_believed");
            Problem::new(StatusCode::UNAUTHORIZED, "invalid_signature", "The signature is not valid")
                .detail(reason.to_string())
        })?;
    let callback = read(switch, &event_id, &body).map_err(|reason| {
        let excerpt = String::from_utf8_lossy(&body[..body.len().min(EXCERPT_BYTES)]);
        tracing::error!(switch = %switch, event.id = event_id, reason, body = %excerpt, "an authentic callback cannot be read");
        count(switch, "unreadable");
        Problem::bad_request("unreadable_callback", reason)
    })?;

    let outcome = match app.ledger.store_callback(&callback).await? {
        StoreCallbackOutcome::New(message) => {
            if let Some(message) = message {
                notify(&app, &message).await;
            }
            "stored"
        }
        StoreCallbackOutcome::Duplicate => "duplicate",
        StoreCallbackOutcome::CallbackEventIdReused => "callback_event_id_reused",
    };
    count(switch, outcome);
    Ok(Json(Receipt { stored: true }))
}

fn find_switch<'a>(app: &'a App, name: &str) -> Result<(&'a SwitchName, &'a [Secret]), Problem> {
    let found = SwitchName::new(name).ok().and_then(|name| app.callback_secrets.get_key_value(&name));
    found
        .map(|(name, secrets)| (name, secrets.as_slice()))
        .ok_or_else(|| Problem::missing("unknown_switch", format!("no switch is called {}", excerpt(name))))
}

/// Reads an authentic body, or says why it cannot be a report of a transfer's end.
fn read(switch: &SwitchName, event_id: &str, body: &[u8]) -> Result<Callback, String> {
    let event_id = EventId::new(event_id).map_err(|error| error.to_string())?;
    let parsed: CallbackBody = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    // Another type with a status of its own must not be taken for the end of a transfer.
    if parsed.r#type != TRANSFER_COMPLETED {
        return Err(format!("type must be {TRANSFER_COMPLETED}, not {}", excerpt(&parsed.r#type)));
    }
    Ok(Callback {
        switch: switch.clone(),
        event_id,
        reference: storable(parsed.reference),
        status: match parsed.status {
            Status::Success => CallbackStatus::Success,
            Status::Failure => CallbackStatus::Failure,
        },
        amount_minor: parsed.amount_minor,
        currency: storable(parsed.currency),
        reason: parsed.reason.map(storable),
        body: body.to_vec(),
    })
}

/// PostgreSQL text holds no NUL. A callback with one is stored all the same; the body keeps it.
fn storable(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

fn count(switch: &SwitchName, outcome: &'static str) {
    metrics::counter!("switch_callbacks_total", "switch" => switch.to_string(), "outcome" => outcome)
        .increment(1);
}

/// Shows what alerts watch from zero on: the first of a kind would not be seen to have been added.
pub(crate) fn show_from_zero<'a>(switches: impl Iterator<Item = &'a SwitchName>) {
    for switch in switches {
        for outcome in ["not_believed", "unreadable"] {
            metrics::counter!("switch_callbacks_total", "switch" => switch.to_string(), "outcome" => outcome)
                .increment(0);
        }
    }
    metrics::counter!("api_overloaded_total").increment(0);
}
