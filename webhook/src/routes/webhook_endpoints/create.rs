//! `POST /api/v1/webhook-endpoints`: an endpoint from now on, with its secret.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use idempotency::http::{self, Ticket};
use outbound_webhooks::endpoints::{self, CreateEndpointOutcome, NewEndpoint};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Problem};
use utoipa::ToSchema;

use super::view::{WebhookEndpoint, WebhookEndpointWithSecret, with_secret};
use super::{disabled_by_operator, kinds, master_key, target};
use crate::app::App;
use crate::auth::WebhookManager;
use crate::error::ApiError;
use crate::idempotent::{self, Begun};
use crate::routes::docs::ProblemDocument;

/// Where to be told, and of what.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"url": "https://bank.example/hooks", "kinds": ["transfer_sent", "transfer_failed"]}))]
pub(crate) struct WebhookEndpointRequest {
    /// `https`, without user, password and fragment; its address must be one of the public internet, or of a network that the
    /// bank's own people have named.
    #[schema(format = "uri", min_length = 1, max_length = 2048)]
    url: String,
    /// Kinds of events; none means all. See the events' catalogue.
    #[serde(default)]
    #[schema(max_items = 100)]
    kinds: Vec<String>,
}

/// Make a webhook endpoint
///
/// It is told of what happens from now on, signed as Standard Webhooks has it: verify with `secret`. Each event comes at least
/// once, always with the same `webhook-id`; order is not promised, `sequence` tells it.
#[utoipa::path(
    post, path = "/api/v1/webhook-endpoints", tag = "webhooks", security(("api_key" = ["webhooks"])),
    params(("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the caller, the same on every repeat", example = "endpoint-1")),
    request_body = WebhookEndpointRequest,
    responses(
        (status = 201, description = "Made now", body = WebhookEndpointWithSecret, headers(("Idempotent-Replay" = String, description = "true for a repeat"))),
        (status = 200, description = "Made before under this key: the same bytes", body = WebhookEndpointWithSecret,
         headers(("Idempotent-Replay" = String, description = "true for a repeat"))),
        (status = 400, description = "malformed_json, idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "disabled_by_operator: the bank's own people have disabled your endpoint on that host. transaction_in_progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "unsupported_media_type: send application/json",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "invalid_url, unknown_kind, too_many_endpoints: no trace is left and the key is unused. payload_mismatch: the key was used for another request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn create_webhook_endpoint(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    ticket: Ticket,
    Json(request): Json<WebhookEndpointRequest>,
) -> Result<Response, ApiError> {
    let master_key = master_key(&app)?;
    let (target, kinds) = (target(&app, &request.url)?, kinds(&request.kinds)?);
    let canonical = serde_json::to_vec(&request)?;
    let mut held = match idempotent::begin(&app, &ticket, &ticket.fingerprint(&canonical)).await? {
        Begun::Held(held) => writes.admit_held(held).await?,
        Begun::Replay(answer) => return Ok(http::write(with_secret(answer, master_key)?, true)),
    };

    let new = NewEndpoint { tenant: caller.tenant.as_str(), target: &target, kinds: &kinds };
    let max = app.webhooks.endpoints_max;
    let endpoint = match endpoints::create(held.connection(), master_key, new, max).await? {
        CreateEndpointOutcome::Created(endpoint) => *endpoint,
        CreateEndpointOutcome::TooMany => {
            let detail = format!("you have {max} webhook endpoints, and more are not allowed; delete one");
            return held.refuse(Problem::unprocessable("too_many_endpoints", detail)).await;
        }
        CreateEndpointOutcome::DisabledByOperator => return held.refuse(disabled_by_operator()).await,
    };
    let answer = held.store(WebhookEndpoint::of(endpoint).answer(201)?).await?;
    Ok(http::write(with_secret(answer, master_key)?, false))
}
