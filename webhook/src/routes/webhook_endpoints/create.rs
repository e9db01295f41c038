//! `POST /api/v1/webhook-endpoints`: creates an endpoint and returns its secret.

use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use idempotency::http::{self, IdempotencyContext};
use outbound_webhooks::endpoints::{self, CreateEndpointOutcome, NewEndpoint};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Problem};
use utoipa::ToSchema;

use super::view::{WebhookEndpoint, WebhookEndpointWithSecret, with_secret};
use super::{disabled_by_operator, kinds, master_key, target};
use crate::app::App;
use crate::auth::WebhookManager;
use crate::error::ApiError;
use crate::idempotent::{self, RequestClaimOutcome};

/// A webhook endpoint to create.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"url": "https://bank.example/hooks", "kinds": ["transfer_sent", "transfer_failed"]}))]
pub(crate) struct WebhookEndpointRequest {
    /// URL that receives the events: `https`, without user, password and fragment; its address must be on the public internet or
    /// in a network that the bank has allowed.
    #[schema(format = "uri", min_length = 1, max_length = 2048)]
    url: String,
    /// Kinds of events to deliver; an empty list means all. See the catalogue of events.
    #[serde(default)]
    #[schema(max_items = 100)]
    kinds: Vec<String>,
}

/// Create a webhook endpoint
///
/// The endpoint receives the events from now on, signed according to Standard Webhooks: verify them with `secret`. Each event is
/// delivered at least once, always with the same `webhook-id`; the order of delivery is not guaranteed, `sequence` gives the order of
/// events.
#[utoipa::path(
    post, path = "/api/v1/webhook-endpoints", tag = "webhooks", security(("api_key" = ["webhooks"])),
    params(("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the client; the same on every retry", example = "endpoint-1")),
    request_body = WebhookEndpointRequest,
    responses(
        (status = 201, description = "The endpoint was created", body = WebhookEndpointWithSecret, headers(("Idempotent-Replay" = String, description = "true for a replay"))),
        (status = 200, description = "The endpoint was created by an earlier request with this key; the body is the same, byte for byte", body = WebhookEndpointWithSecret,
         headers(("Idempotent-Replay" = String, description = "true for a replay"))),
        (status = 400, description = "malformed_json, idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "disabled_by_operator: an operator of the bank has disabled your endpoint on that host. transaction_in_progress: the first request with this key is still in progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "unsupported_media_type: send application/json",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "invalid_url, unknown_kind, too_many_endpoints: nothing was stored and the key is unused. payload_mismatch: the key was used for a different request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn create_webhook_endpoint(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    context: IdempotencyContext,
    Json(request): Json<WebhookEndpointRequest>,
) -> Result<Response, ApiError> {
    let master_key = master_key(&app)?;
    let (target, kinds) = (target(&app, &request.url)?, kinds(&request.kinds)?);
    let canonical = serde_json::to_vec(&request)?;
    let mut claimed = match idempotent::claim(&app, &context, &context.fingerprint(&canonical)).await? {
        RequestClaimOutcome::Claimed(claimed) => writes.admit_claimed(claimed).await?,
        RequestClaimOutcome::Replay(response) => {
            return Ok(http::json_response(with_secret(response, master_key)?, true));
        }
    };

    let new = NewEndpoint { tenant: caller.tenant.as_str(), target: &target, kinds: &kinds };
    let max = app.webhooks.endpoints_max;
    let endpoint = match endpoints::create(claimed.connection(), master_key, new, max).await? {
        CreateEndpointOutcome::Created(endpoint) => *endpoint,
        CreateEndpointOutcome::TooMany => {
            let detail = format!(
                "your tenant has {max} webhook endpoints, which is the limit; delete one before you create another"
            );
            return claimed.refuse(Problem::unprocessable("too_many_endpoints", detail)).await;
        }
        CreateEndpointOutcome::DisabledByOperator => return claimed.refuse(disabled_by_operator()).await,
    };
    let response = claimed.store(WebhookEndpoint::of(endpoint).to_response(201)?).await?;
    Ok(http::json_response(with_secret(response, master_key)?, false))
}
