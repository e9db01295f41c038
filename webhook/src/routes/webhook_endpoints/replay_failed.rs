//! `POST /api/v1/webhook-endpoints/{endpoint_id}/replay-failed`: everything that failed since an instant, once more.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use idempotency::Answer;
use idempotency::http::{self, Ticket};
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
use crate::idempotent::{self, Begun};
use crate::routes::docs::ProblemDocument;

/// From when on.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"since": "2026-01-31T00:00:00Z"}))]
pub(crate) struct WebhookReplayRequest {
    /// Events that were taken in at this instant (RFC 3339) or later.
    #[schema(format = DateTime)]
    since: String,
}

/// They are sent again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhooksReplayed {
    /// How many, the oldest first; 1000 at most. Ask again, under another key, until it is 0.
    replayed: u64,
}

/// Send again what failed
#[utoipa::path(
    post, path = "/api/v1/webhook-endpoints/{endpoint_id}/replay-failed", tag = "webhooks",
    security(("api_key" = ["webhooks"])),
    params(
        ("endpoint_id" = String, Path, description = "From its creation"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the caller, the same on every repeat", example = "replay-all-1"),
    ),
    request_body = WebhookReplayRequest,
    responses(
        (status = 202, description = "They are sent", body = WebhooksReplayed, headers(("Idempotent-Replay" = String, description = "true for a repeat"))),
        (status = 400, description = "malformed_json, idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found; another tenant's endpoint is not found either",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "endpoint_disabled: have it told again first. transaction_in_progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "unsupported_media_type: send application/json",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "invalid_instant: the key is unused. payload_mismatch: the key was used for another request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn replay_failed_webhooks(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    ticket: Ticket,
    Path(id): Path<String>,
    Json(request): Json<WebhookReplayRequest>,
) -> Result<Response, ApiError> {
    let id = endpoint_id(&id)?;
    let since: Timestamp = request.since.parse().map_err(|_| {
        Problem::unprocessable("invalid_instant", "since must be an instant like 2026-01-31T00:00:00Z")
    })?;
    // Nothing was taken in before; PostgreSQL knows fewer years than a timestamp has.
    let since = since.max(Timestamp::UNIX_EPOCH);
    let canonical = serde_json::to_vec(&request)?;
    let mut held = match idempotent::begin(&app, &ticket, &ticket.fingerprint(&canonical)).await? {
        Begun::Held(held) => writes.admit_held(held).await?,
        Begun::Replay(answer) => return Ok(http::write(answer, true)),
    };

    if let Err(why) = require_active(held.connection(), &caller, &id).await {
        return held.refuse(why).await;
    }
    let replayed = deliveries::replay_failed(held.connection(), &id, since).await?;
    let body = serde_json::to_vec(&WebhooksReplayed { replayed })?;
    held.complete(Answer::new(StatusCode::ACCEPTED.as_u16(), body)).await
}
