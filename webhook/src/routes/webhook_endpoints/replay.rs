//! `POST /api/v1/webhook-endpoints/{endpoint_id}/deliveries/{event_id}/replay`: delivers one event again.

use openapi_kit::ProblemDocument;
use postgres_kit::Connection;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use idempotency::StoredResponse;
use idempotency::http::{self, IdempotencyContext};
use outbound_webhooks::EndpointId;
use outbound_webhooks::deliveries::{self, ReplayOutcome};
use outbound_webhooks::endpoints::EndpointStatus;
use payment_ledger::access::api_keys::Caller;
use serde::Serialize;
use service_kit::problem::{Path, Problem};
use utoipa::ToSchema;

use super::{endpoint_id, find};
use crate::app::App;
use crate::auth::WebhookManager;
use crate::error::{ApiError, excerpt};
use crate::extract::RawBody;
use crate::idempotent::{self, RequestClaimOutcome};

/// The delivery is scheduled.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookReplay<'a> {
    /// Id of the event.
    event_id: &'a str,
    /// `scheduled`, or `in_progress` if a delivery attempt is in progress.
    status: &'a str,
}

/// Replay a delivery
///
/// Delivers the event again, whether or not it was delivered, with the same `webhook-id` and the full retry schedule.
#[utoipa::path(
    post, path = "/api/v1/webhook-endpoints/{endpoint_id}/deliveries/{event_id}/replay", tag = "webhooks",
    security(("api_key" = ["webhooks"])),
    params(
        ("endpoint_id" = String, Path, description = "Id of the webhook endpoint"),
        ("event_id" = String, Path, description = "Id of the event, from the list of deliveries"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the client; the same on every retry", example = "replay-1"),
    ),
    responses(
        (status = 202, description = "The delivery is scheduled", body = WebhookReplay, headers(("Idempotent-Replay" = String, description = "true for a replay"))),
        (status = 400, description = "idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found, delivery_not_found: your tenant has no such endpoint, or the endpoint has no such delivery",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "endpoint_disabled: set the status of the endpoint to active first. transaction_in_progress: the first request with this key is still in progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "payload_mismatch: the key was used for a different request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn replay_webhook_delivery(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    context: IdempotencyContext,
    Path((id, event_id)): Path<(String, String)>,
    RawBody(body): RawBody,
) -> Result<Response, ApiError> {
    let id = endpoint_id(&id)?;
    if event_id.contains('\0') {
        return Err(delivery_not_found(&event_id));
    }
    let mut claimed = match idempotent::claim(&app, &context, &context.fingerprint(&body)).await? {
        RequestClaimOutcome::Claimed(claimed) => writes.admit_claimed(claimed).await?,
        RequestClaimOutcome::Replay(response) => return Ok(http::json_response(response, true)),
    };

    if let Err(error) = require_active(claimed.connection(), &caller, &id).await {
        return claimed.refuse(error).await;
    }
    let status = match deliveries::replay(claimed.connection(), &id, &event_id).await? {
        ReplayOutcome::Due => "scheduled",
        ReplayOutcome::InFlight => "in_progress",
        ReplayOutcome::Unknown => return claimed.refuse(delivery_not_found(&event_id)).await,
    };
    let body = WebhookReplay { event_id: &event_id, status };
    claimed.complete(StoredResponse::new(StatusCode::ACCEPTED.as_u16(), serde_json::to_vec(&body)?)).await
}

/// Refuses a disabled endpoint, at which a replayed delivery would stay pending.
pub(super) async fn require_active(
    connection: &mut Connection,
    caller: &Caller,
    id: &EndpointId,
) -> Result<(), ApiError> {
    match find(connection, caller, id).await?.status {
        EndpointStatus::Active => Ok(()),
        EndpointStatus::Disabled => {
            let detail =
                "the webhook endpoint is disabled and nothing was replayed; set its status to active first";
            Err(Problem::conflict("endpoint_disabled", detail).into())
        }
    }
}

fn delivery_not_found(event_id: &str) -> ApiError {
    let detail = format!(
        "this webhook endpoint has no delivery of the event {}, or it is no longer retained; check the id",
        excerpt(event_id)
    );
    Problem::missing("delivery_not_found", detail).into()
}
