//! `POST /api/v1/webhook-endpoints/{endpoint_id}/rotate-secret`: the next secret; the one before signs on for a while.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use idempotency::http::{self, Ticket};
use outbound_webhooks::endpoints;
use service_kit::problem::Path;

use super::view::{WebhookEndpoint, WebhookEndpointWithSecret, with_secret};
use super::{endpoint_id, master_key, not_found};
use crate::app::App;
use crate::auth::WebhookManager;
use crate::error::ApiError;
use crate::extract::RawBody;
use crate::idempotent::{self, Begun};
use crate::routes::docs::ProblemDocument;

/// Rotate the secret of a webhook endpoint
///
/// From now on the new secret signs, and until `old_secret_until` the one before, too: two signatures in one header. Rotated
/// once more, the one before is good no longer.
#[utoipa::path(
    post, path = "/api/v1/webhook-endpoints/{endpoint_id}/rotate-secret", tag = "webhooks",
    security(("api_key" = ["webhooks"])),
    params(
        ("endpoint_id" = String, Path, description = "From its creation"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the caller, the same on every repeat", example = "rotate-1"),
    ),
    responses(
        (status = 200, description = "Rotated, now or before under this key", body = WebhookEndpointWithSecret,
         headers(("Idempotent-Replay" = String, description = "true for a repeat"))),
        (status = 400, description = "idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found; another tenant's endpoint is not found either",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "transaction_in_progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "payload_mismatch: the key was used for another request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn rotate_webhook_secret(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    ticket: Ticket,
    Path(id): Path<String>,
    RawBody(body): RawBody,
) -> Result<Response, ApiError> {
    let id = endpoint_id(&id)?;
    let master_key = master_key(&app)?;
    let mut held = match idempotent::begin(&app, &ticket, &ticket.fingerprint(&body)).await? {
        Begun::Held(held) => writes.admit_held(held).await?,
        Begun::Replay(answer) => return Ok(http::write(with_secret(answer, master_key)?, true)),
    };

    let overlap_s = app.webhooks.secret_overlap_s;
    let tenant = caller.tenant.as_str();
    let rotated = endpoints::rotate(held.connection(), master_key, tenant, &id, overlap_s).await?;
    let Some(endpoint) = rotated else { return held.refuse(not_found(id.as_str())).await };
    let answer = held.store(WebhookEndpoint::of(endpoint).answer(200)?).await?;
    Ok(http::write(with_secret(answer, master_key)?, false))
}
