//! `GET /api/v1/webhook-endpoints`: the tenant's endpoints. They are few, so there are no pages.

use std::sync::Arc;

use axum::extract::State;
use outbound_webhooks::endpoints::{self, EndpointScope};
use serde::Serialize;
use service_kit::problem::Json;
use utoipa::ToSchema;

use super::view::WebhookEndpoint;
use crate::app::App;
use crate::auth::WebhookReader;
use crate::error::ApiError;

/// A tenant's endpoints, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookEndpoints {
    webhook_endpoints: Vec<WebhookEndpoint>,
}

/// List webhook endpoints
#[utoipa::path(
    get, path = "/api/v1/webhook-endpoints", tag = "webhooks", security(("api_key" = ["webhooks"])),
    responses((status = 200, description = "All of them", body = WebhookEndpoints)),
)]
pub(crate) async fn list_webhook_endpoints(
    State(app): State<Arc<App>>,
    WebhookReader(caller): WebhookReader,
) -> Result<Json<WebhookEndpoints>, ApiError> {
    let mut connection = app.ledger.pool().acquire().await?;
    let whose = EndpointScope::Tenant(caller.tenant.as_str());
    // As many as there can be, also where fewer were allowed meanwhile.
    let found = endpoints::list(&mut connection, whose, i64::MAX).await?;
    Ok(Json(WebhookEndpoints { webhook_endpoints: found.into_iter().map(WebhookEndpoint::of).collect() }))
}
