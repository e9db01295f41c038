//! `DELETE /api/v1/webhook-endpoints/{endpoint_id}`: for ever, with whatever waits for it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use idempotency::Answer;
use idempotency::http::{self, Ticket};
use outbound_webhooks::endpoints::{self, EndpointUpdateOutcome};
use serde::Serialize;
use service_kit::problem::Path;
use utoipa::ToSchema;

use super::{disabled_by_operator, endpoint_id, not_found};
use crate::app::App;
use crate::auth::WebhookManager;
use crate::error::ApiError;
use crate::idempotent::{self, Begun};
use crate::routes::docs::ProblemDocument;

/// It is gone.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookEndpointDeleted<'a> {
    /// Which.
    endpoint_id: &'a str,
    /// Always `deleted`.
    status: &'a str,
}

/// Delete a webhook endpoint
///
/// An attempt that is under way may still arrive.
#[utoipa::path(
    delete, path = "/api/v1/webhook-endpoints/{endpoint_id}", tag = "webhooks", security(("api_key" = ["webhooks"])),
    params(
        ("endpoint_id" = String, Path, description = "From its creation"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the caller, the same on every repeat", example = "delete-1"),
    ),
    responses(
        (status = 200, description = "Deleted, now or before under this key", body = WebhookEndpointDeleted,
         headers(("Idempotent-Replay" = String, description = "true for a repeat"))),
        (status = 400, description = "idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found; another tenant's endpoint is not found either",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "disabled_by_operator: the bank's own people must have it told again first. transaction_in_progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "payload_mismatch: the key was used for another request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn delete_webhook_endpoint(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    ticket: Ticket,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = endpoint_id(&id)?;
    let mut held = match idempotent::begin(&app, &ticket, &ticket.fingerprint(&[])).await? {
        Begun::Held(held) => writes.admit_held(held).await?,
        Begun::Replay(answer) => return Ok(http::write(answer, true)),
    };

    match endpoints::delete(held.connection(), caller.tenant.as_str(), &id).await? {
        EndpointUpdateOutcome::Done(()) => {}
        EndpointUpdateOutcome::NotFound => return held.refuse(not_found(id.as_str())).await,
        EndpointUpdateOutcome::DisabledByOperator => return held.refuse(disabled_by_operator()).await,
    }
    let body = WebhookEndpointDeleted { endpoint_id: id.as_str(), status: "deleted" };
    held.complete(Answer::new(StatusCode::OK.as_u16(), serde_json::to_vec(&body)?)).await
}
