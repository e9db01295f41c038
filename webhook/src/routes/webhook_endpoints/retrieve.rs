//! `GET /api/v1/webhook-endpoints/{endpoint_id}`: one endpoint.

use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use service_kit::problem::{Json, Path};

use super::view::WebhookEndpoint;
use super::{endpoint_id, find};
use crate::app::App;
use crate::auth::WebhookReader;
use crate::error::ApiError;

/// Retrieve a webhook endpoint
#[utoipa::path(
    get, path = "/api/v1/webhook-endpoints/{endpoint_id}", tag = "webhooks", security(("api_key" = ["webhooks"])),
    params(("endpoint_id" = String, Path, description = "Id of the webhook endpoint")),
    responses(
        (status = 200, description = "The endpoint", body = WebhookEndpoint),
        (status = 404, description = "endpoint_not_found: no webhook endpoint with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retrieve_webhook_endpoint(
    State(app): State<Arc<App>>,
    WebhookReader(caller): WebhookReader,
    Path(id): Path<String>,
) -> Result<Json<WebhookEndpoint>, ApiError> {
    let id = endpoint_id(&id)?;
    let mut connection = app.reads.pool().acquire().await?;
    Ok(Json(WebhookEndpoint::of(find(&mut connection, &caller, &id).await?)))
}
