//! `DELETE /api/v1/webhook-endpoints/{endpoint_id}`: deletes an endpoint with its deliveries.

use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use idempotency::StoredResponse;
use idempotency::http::{self, IdempotencyContext};
use outbound_webhooks::endpoints::{self, EndpointUpdateOutcome};
use serde::Serialize;
use service_kit::problem::Path;
use utoipa::ToSchema;

use super::{disabled_by_operator, endpoint_id, not_found};
use crate::app::App;
use crate::auth::WebhookManager;
use crate::error::ApiError;
use crate::idempotent::{self, RequestClaimOutcome};

/// The endpoint is deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookEndpointDeleted<'a> {
    /// Id of the endpoint.
    endpoint_id: &'a str,
    /// Always `deleted`.
    status: &'a str,
}

/// Delete a webhook endpoint
///
/// Deletes the endpoint and its deliveries. A delivery attempt in progress may still arrive.
#[utoipa::path(
    delete, path = "/api/v1/webhook-endpoints/{endpoint_id}", tag = "webhooks", security(("api_key" = ["webhooks"])),
    params(
        ("endpoint_id" = String, Path, description = "Id of the webhook endpoint"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the client; the same on every retry", example = "delete-1"),
    ),
    responses(
        (status = 200, description = "The endpoint is deleted, now or by an earlier request with this key", body = WebhookEndpointDeleted,
         headers(("Idempotent-Replay" = String, description = "true for a replay"))),
        (status = 400, description = "idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found: no webhook endpoint with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "disabled_by_operator: an operator of the bank has disabled the endpoint; ask the bank to enable it first. transaction_in_progress: the first request with this key is still in progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "payload_mismatch: the key was used for a different request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn delete_webhook_endpoint(
    State(app): State<Arc<App>>,
    WebhookManager { caller, writes }: WebhookManager,
    context: IdempotencyContext,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = endpoint_id(&id)?;
    let mut claimed = match idempotent::claim(&app, &context, &context.fingerprint(&[])).await? {
        RequestClaimOutcome::Claimed(claimed) => writes.admit_claimed(claimed).await?,
        RequestClaimOutcome::Replay(response) => return Ok(http::json_response(response, true)),
    };

    match endpoints::delete(claimed.connection(), caller.tenant.as_str(), &id).await? {
        EndpointUpdateOutcome::Done(()) => {}
        EndpointUpdateOutcome::NotFound => return claimed.refuse(not_found(id.as_str())).await,
        EndpointUpdateOutcome::DisabledByOperator => return claimed.refuse(disabled_by_operator()).await,
    }
    let body = WebhookEndpointDeleted { endpoint_id: id.as_str(), status: "deleted" };
    claimed.complete(StoredResponse::new(StatusCode::OK.as_u16(), serde_json::to_vec(&body)?)).await
}
