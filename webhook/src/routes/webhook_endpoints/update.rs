//! `PATCH /api/v1/webhook-endpoints/{endpoint_id}`: changes URL, kinds of events or status.

use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use idempotency::http::{self, IdempotencyContext};
use outbound_webhooks::endpoints::{self, EndpointChange, EndpointStatus, EndpointUpdateOutcome};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem};
use utoipa::ToSchema;

use super::view::{WebhookEndpoint, WebhookEndpointStatus};
use super::{disabled_by_operator, endpoint_id, kinds, not_found, target};
use crate::app::App;
use crate::auth::WebhookManager;
use crate::error::{ApiError, excerpt};
use crate::idempotent::{self, RequestClaimOutcome};

/// Fields to change; omitted fields stay unchanged.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"status": "disabled"}))]
pub(crate) struct WebhookEndpointUpdate {
    /// New URL, with the rules of a new endpoint; pending deliveries are sent to it, too.
    #[serde(default)]
    #[schema(format = "uri", min_length = 1, max_length = 2048)]
    url: Option<String>,
    /// Kinds of events to deliver; an empty list means all.
    #[serde(default)]
    #[schema(max_items = 100)]
    kinds: Option<Vec<String>>,
    /// A disabled endpoint gets no new deliveries; its pending deliveries stay pending.
    #[serde(default)]
    #[schema(value_type = Option<WebhookEndpointStatus>)]
    status: Option<String>,
}

/// Update a webhook endpoint
#[utoipa::path(
    patch, path = "/api/v1/webhook-endpoints/{endpoint_id}", tag = "webhooks", security(("api_key" = ["webhooks"])),
    params(
        ("endpoint_id" = String, Path, description = "Id of the webhook endpoint"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the client; the same on every retry", example = "change-1"),
    ),
    request_body = WebhookEndpointUpdate,
    responses(
        (status = 200, description = "The updated endpoint", body = WebhookEndpoint, headers(("Idempotent-Replay" = String, description = "true for a replay"))),
        (status = 400, description = "malformed_json, idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found: no webhook endpoint with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "disabled_by_operator: an operator of the bank has disabled the endpoint, or one on that host; ask the bank to enable it. transaction_in_progress: the first request with this key is still in progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "unsupported_media_type: send application/json",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "invalid_url, unknown_kind, invalid_status: nothing was changed and the key is unused. payload_mismatch: the key was used for a different request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn update_webhook_endpoint(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    context: IdempotencyContext,
    Path(id): Path<String>,
    Json(request): Json<WebhookEndpointUpdate>,
) -> Result<Response, ApiError> {
    let id = endpoint_id(&id)?;
    let target = request.url.as_deref().map(|url| target(&app, url)).transpose()?;
    let kinds = request.kinds.as_deref().map(kinds).transpose()?;
    let status = request.status.as_deref().map(status).transpose()?;
    let canonical = serde_json::to_vec(&request)?;
    let mut claimed = match idempotent::claim(&app, &context, &context.fingerprint(&canonical)).await? {
        RequestClaimOutcome::Claimed(claimed) => writes.admit_claimed(claimed).await?,
        RequestClaimOutcome::Replay(response) => return Ok(http::json_response(response, true)),
    };

    let change = EndpointChange { target: target.as_ref(), kinds: kinds.as_deref(), status };
    let changed = endpoints::change(claimed.connection(), caller.tenant.as_str(), &id, change).await?;
    match changed {
        EndpointUpdateOutcome::Done(endpoint) => {
            claimed.complete(WebhookEndpoint::of(*endpoint).to_response(200)?).await
        }
        EndpointUpdateOutcome::NotFound => claimed.refuse(not_found(id.as_str())).await,
        EndpointUpdateOutcome::DisabledByOperator => claimed.refuse(disabled_by_operator()).await,
    }
}

fn status(text: &str) -> Result<EndpointStatus, Problem> {
    EndpointStatus::parse(text).ok_or_else(|| {
        let detail = format!("status must be active or disabled, not {}", excerpt(text));
        Problem::unprocessable("invalid_status", detail)
    })
}
