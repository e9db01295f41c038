//! `GET /api/v1/webhook-endpoints`: the tenant's endpoints, without pages because their number is limited.

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

/// The endpoints of a tenant, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookEndpointList {
    webhook_endpoints: Vec<WebhookEndpoint>,
}

/// List webhook endpoints
#[utoipa::path(
    get, path = "/api/v1/webhook-endpoints", tag = "webhooks", security(("api_key" = ["webhooks"])),
    responses((status = 200, description = "All webhook endpoints of your tenant", body = WebhookEndpointList)),
)]
pub(crate) async fn list_webhook_endpoints(
    State(app): State<Arc<App>>,
    WebhookReader(caller): WebhookReader,
) -> Result<Json<WebhookEndpointList>, ApiError> {
    let mut connection = app.reads.pool().acquire().await?;
    let whose = EndpointScope::Tenant(caller.tenant.as_str());
    // All of them, also if the limit was lowered since they were created.
    let endpoints = endpoints::list(&mut connection, whose, i64::MAX).await?;
    Ok(Json(WebhookEndpointList {
        webhook_endpoints: endpoints.into_iter().map(WebhookEndpoint::of).collect(),
    }))
}
