//! `PATCH /api/v1/webhook-endpoints/{endpoint_id}`: where it is, what it is told of, whether it is told.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use idempotency::http::{self, Ticket};
use outbound_webhooks::endpoints::{self, EndpointChange, EndpointStatus, EndpointUpdateOutcome};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem};
use utoipa::ToSchema;

use super::view::WebhookEndpoint;
use super::{disabled_by_operator, endpoint_id, kinds, not_found, target};
use crate::app::App;
use crate::auth::WebhookManager;
use crate::error::{ApiError, excerpt};
use crate::idempotent::{self, Begun};
use crate::routes::docs::ProblemDocument;

/// What shall be otherwise; what is left out stays.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"status": "disabled"}))]
pub(crate) struct WebhookEndpointChange {
    /// As for a new endpoint. What waits goes there, too.
    #[serde(default)]
    #[schema(format = "uri", min_length = 1, max_length = 2048)]
    url: Option<String>,
    /// Kinds of events; an empty list means all.
    #[serde(default)]
    #[schema(max_items = 100)]
    kinds: Option<Vec<String>>,
    /// `active` or `disabled`. A disabled endpoint is not told of what happens meanwhile; what waited for it waits on.
    #[serde(default)]
    #[schema(pattern = "^(active|disabled)$")]
    status: Option<String>,
}

/// Change a webhook endpoint
#[utoipa::path(
    patch, path = "/api/v1/webhook-endpoints/{endpoint_id}", tag = "webhooks", security(("api_key" = ["webhooks"])),
    params(
        ("endpoint_id" = String, Path, description = "From its creation"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the caller, the same on every repeat", example = "change-1"),
    ),
    request_body = WebhookEndpointChange,
    responses(
        (status = 200, description = "As it stands now", body = WebhookEndpoint, headers(("Idempotent-Replay" = String, description = "true for a repeat"))),
        (status = 400, description = "malformed_json, idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found; another tenant's endpoint is not found either",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "disabled_by_operator: the bank's own people have disabled it, or one on that host, and must have it told again. transaction_in_progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "unsupported_media_type: send application/json",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "invalid_url, unknown_kind, invalid_status: the key is unused. payload_mismatch: the key was used for another request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn change_webhook_endpoint(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    ticket: Ticket,
    Path(id): Path<String>,
    Json(request): Json<WebhookEndpointChange>,
) -> Result<Response, ApiError> {
    let id = endpoint_id(&id)?;
    let target = request.url.as_deref().map(|url| target(&app, url)).transpose()?;
    let kinds = request.kinds.as_deref().map(kinds).transpose()?;
    let status = request.status.as_deref().map(status).transpose()?;
    let canonical = serde_json::to_vec(&request)?;
    let mut held = match idempotent::begin(&app, &ticket, &ticket.fingerprint(&canonical)).await? {
        Begun::Held(held) => writes.admit_held(held).await?,
        Begun::Replay(answer) => return Ok(http::write(answer, true)),
    };

    let change = EndpointChange { target: target.as_ref(), kinds: kinds.as_deref(), status };
    let changed = endpoints::change(held.connection(), caller.tenant.as_str(), &id, change).await?;
    match changed {
        EndpointUpdateOutcome::Done(endpoint) => {
            held.complete(WebhookEndpoint::of(*endpoint).answer(200)?).await
        }
        EndpointUpdateOutcome::NotFound => held.refuse(not_found(id.as_str())).await,
        EndpointUpdateOutcome::DisabledByOperator => held.refuse(disabled_by_operator()).await,
    }
}

fn status(word: &str) -> Result<EndpointStatus, Problem> {
    EndpointStatus::parse(word).ok_or_else(|| {
        let detail = format!("{} is neither active nor disabled", excerpt(word));
        Problem::unprocessable("invalid_status", detail)
    })
}
