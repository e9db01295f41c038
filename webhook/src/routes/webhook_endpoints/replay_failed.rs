//! `POST /api/v1/webhook-endpoints/{endpoint_id}/replay-failed`: replays all deliveries that failed since an instant.

use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use idempotency::StoredResponse;
use idempotency::http::{self, IdempotencyContext};
use jiff::Timestamp;
use outbound_webhooks::deliveries;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem};
use utoipa::ToSchema;

use super::endpoint_id;
use super::replay::require_active;
use crate::app::App;
use crate::auth::WebhookManager;
use crate::error::ApiError;
use crate::idempotent::{self, RequestClaimOutcome};

/// Which failed deliveries to replay.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"since": "2026-01-31T00:00:00Z"}))]
pub(crate) struct ReplayFailedRequest {
    /// Deliveries created at this instant (RFC 3339) or later.
    #[schema(format = DateTime)]
    since: String,
}

/// The deliveries are scheduled.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplayFailedResult {
    /// Number of deliveries, oldest first, at most 1000. Repeat the request with a new key until it is 0.
    replayed: u64,
}

/// Replay failed deliveries
#[utoipa::path(
    post, path = "/api/v1/webhook-endpoints/{endpoint_id}/replay-failed", tag = "webhooks",
    security(("api_key" = ["webhooks"])),
    params(
        ("endpoint_id" = String, Path, description = "Id of the webhook endpoint"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the client; the same on every retry", example = "replay-all-1"),
    ),
    request_body = ReplayFailedRequest,
    responses(
        (status = 202, description = "The deliveries are scheduled", body = ReplayFailedResult, headers(("Idempotent-Replay" = String, description = "true for a replay"))),
        (status = 400, description = "malformed_json, idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found: no webhook endpoint with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "endpoint_disabled: set the status of the endpoint to active first. transaction_in_progress: the first request with this key is still in progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "unsupported_media_type: send application/json",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "invalid_instant: nothing was replayed and the key is unused. payload_mismatch: the key was used for a different request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn replay_failed_webhook_deliveries(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    context: IdempotencyContext,
    Path(id): Path<String>,
    Json(request): Json<ReplayFailedRequest>,
) -> Result<Response, ApiError> {
    let id = endpoint_id(&id)?;
    let since: Timestamp = request.since.parse().map_err(|_| {
        Problem::unprocessable("invalid_instant", "since must be an instant such as 2026-01-31T00:00:00Z")
    })?;
    // No delivery is older; PostgreSQL supports fewer years than a timestamp.
    let since = since.max(Timestamp::UNIX_EPOCH);
    let canonical = serde_json::to_vec(&request)?;
    let mut claimed = match idempotent::claim(&app, &context, &context.fingerprint(&canonical)).await? {
        RequestClaimOutcome::Claimed(claimed) => writes.admit_claimed(claimed).await?,
        RequestClaimOutcome::Replay(response) => return Ok(http::json_response(response, true)),
    };

    if let Err(error) = require_active(claimed.connection(), &caller, &id).await {
        return claimed.refuse(error).await;
    }
    let replayed = deliveries::replay_failed(claimed.connection(), &id, since).await?;
    let body = serde_json::to_vec(&ReplayFailedResult { replayed })?;
    claimed.complete(StoredResponse::new(StatusCode::ACCEPTED.as_u16(), body)).await
}
