//! `POST /api/v1/webhook-endpoints/{endpoint_id}/rotate-secret`: a new secret; the previous one signs, too, for an overlap.

use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use idempotency::http::{self, IdempotencyContext};
use outbound_webhooks::endpoints;
use service_kit::problem::Path;

use super::view::{WebhookEndpoint, WebhookEndpointWithSecret, with_secret};
use super::{endpoint_id, master_key, not_found};
use crate::app::App;
use crate::auth::WebhookManager;
use crate::error::ApiError;
use crate::extract::RawBody;
use crate::idempotent::{self, RequestClaimOutcome};

/// Rotate the secret of a webhook endpoint
///
/// The new secret signs from now on; until `old_secret_until` the previous secret signs, too, so that the header has two signatures. A
/// further rotation retires the previous secret at once.
#[utoipa::path(
    post, path = "/api/v1/webhook-endpoints/{endpoint_id}/rotate-secret", tag = "webhooks",
    security(("api_key" = ["webhooks"])),
    params(
        ("endpoint_id" = String, Path, description = "Id of the webhook endpoint"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the client; the same on every retry", example = "rotate-1"),
    ),
    responses(
        (status = 200, description = "The secret is rotated, now or by an earlier request with this key", body = WebhookEndpointWithSecret,
         headers(("Idempotent-Replay" = String, description = "true for a replay"))),
        (status = 400, description = "idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found: no webhook endpoint with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "transaction_in_progress: the first request with this key is still in progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "payload_mismatch: the key was used for a different request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn rotate_webhook_secret(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    context: IdempotencyContext,
    Path(id): Path<String>,
    RawBody(body): RawBody,
) -> Result<Response, ApiError> {
    let id = endpoint_id(&id)?;
    let master_key = master_key(&app)?;
    let mut claimed = match idempotent::claim(&app, &context, &context.fingerprint(&body)).await? {
        RequestClaimOutcome::Claimed(claimed) => writes.admit_claimed(claimed).await?,
        RequestClaimOutcome::Replay(response) => {
            return Ok(http::json_response(with_secret(response, master_key)?, true));
        }
    };

    let overlap_s = app.webhooks.secret_overlap_s;
    let tenant = caller.tenant.as_str();
    let rotated = endpoints::rotate(claimed.connection(), master_key, tenant, &id, overlap_s).await?;
    let Some(endpoint) = rotated else { return claimed.refuse(not_found(id.as_str())).await };
    let response = claimed.store(WebhookEndpoint::of(endpoint).to_response(200)?).await?;
    Ok(http::json_response(with_secret(response, master_key)?, false))
}
