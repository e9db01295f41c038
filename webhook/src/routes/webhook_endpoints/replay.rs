//! `POST /api/v1/webhook-endpoints/{endpoint_id}/deliveries/{event_id}/replay`: one event once more.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use idempotency::Answer;
use idempotency::http::{self, Ticket};
use outbound_webhooks::EndpointId;
use outbound_webhooks::deliveries::{self, ReplayOutcome};
use outbound_webhooks::endpoints::EndpointStatus;
use payment_ledger::access::api_keys::Caller;
use serde::Serialize;
use service_kit::problem::{Path, Problem};
use sqlx::PgConnection;
use utoipa::ToSchema;

use super::{endpoint_id, find};
use crate::app::App;
use crate::auth::WebhookManager;
use crate::error::{ApiError, excerpt};
use crate::extract::RawBody;
use crate::idempotent::{self, Begun};
use crate::routes::docs::ProblemDocument;

/// It is sent again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookReplayed<'a> {
    /// The event.
    event_id: &'a str,
    /// `due`, or `under_way` where an attempt is being made anyway.
    status: &'a str,
}

/// Send an event again
///
/// Whether it was delivered or not, with the same `webhook-id` and the whole schedule before it.
#[utoipa::path(
    post, path = "/api/v1/webhook-endpoints/{endpoint_id}/deliveries/{event_id}/replay", tag = "webhooks",
    security(("api_key" = ["webhooks"])),
    params(
        ("endpoint_id" = String, Path, description = "From its creation"),
        ("event_id" = String, Path, description = "From the list of deliveries"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the caller, the same on every repeat", example = "replay-1"),
    ),
    responses(
        (status = 202, description = "It is sent", body = WebhookReplayed, headers(("Idempotent-Replay" = String, description = "true for a repeat"))),
        (status = 400, description = "idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found, delivery_not_found",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "endpoint_disabled: have it told again first. transaction_in_progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "payload_mismatch: the key was used for another request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn replay_webhook_delivery(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    ticket: Ticket,
    Path((id, event_id)): Path<(String, String)>,
    RawBody(body): RawBody,
) -> Result<Response, ApiError> {
    let id = endpoint_id(&id)?;
    if event_id.contains('\0') {
        return Err(not_delivered(&event_id));
    }
    let mut held = match idempotent::begin(&app, &ticket, &ticket.fingerprint(&body)).await? {
        Begun::Held(held) => writes.admit_held(held).await?,
        Begun::Replay(answer) => return Ok(http::write(answer, true)),
    };

    if let Err(why) = require_active(held.connection(), &caller, &id).await {
        return held.refuse(why).await;
    }
    let status = match deliveries::replay(held.connection(), &id, &event_id).await? {
        ReplayOutcome::Due => "due",
        ReplayOutcome::InFlight => "under_way",
        ReplayOutcome::Unknown => return held.refuse(not_delivered(&event_id)).await,
    };
    let body = WebhookReplayed { event_id: &event_id, status };
    held.complete(Answer::new(StatusCode::ACCEPTED.as_u16(), serde_json::to_vec(&body)?)).await
}

/// What is replayed at an endpoint that is not told would only wait.
pub(super) async fn require_active(
    connection: &mut PgConnection,
    caller: &Caller,
    id: &EndpointId,
) -> Result<(), ApiError> {
    match find(connection, caller, id).await?.status {
        EndpointStatus::Active => Ok(()),
        EndpointStatus::Disabled => {
            let detail = "the endpoint is disabled, so nothing would be sent; have it told again first";
            Err(Problem::conflict("endpoint_disabled", detail).into())
        }
    }
}

fn not_delivered(event_id: &str) -> ApiError {
    let detail =
        format!("nothing of {} was to be sent to this endpoint, or it is too long ago", excerpt(event_id));
    Problem::missing("delivery_not_found", detail).into()
}
