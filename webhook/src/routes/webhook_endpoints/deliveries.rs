//! `GET /api/v1/webhook-endpoints/{endpoint_id}/deliveries`: deliveries with their last attempts.

use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use outbound_webhooks::deliveries::{self, DeliveryFilter, DeliveryState};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem, Query};
use utoipa::{IntoParams, ToSchema};

use super::view::{WebhookDelivery, WebhookDeliveryState};
use super::{endpoint_id, find};
use crate::app::App;
use crate::auth::WebhookReader;
use crate::error::{ApiError, malformed_query};
use crate::paging::{next_cursor, page_limit};

/// Longest event id of a cursor, in characters.
const EVENT_ID_MAX: usize = 256;

/// Filters of a list of deliveries; all must match.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListDeliveriesQuery {
    /// Deliveries in this state.
    #[param(value_type = Option<WebhookDeliveryState>)]
    state: Option<String>,
    /// Most deliveries on the page. Default 50.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<i64>,
    /// Cursor: `next` of the previous page.
    #[param(min_length = 1, max_length = 256, pattern = "^[!-~]+$")]
    after: Option<String>,
}

/// A page of deliveries, newest event first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookDeliveryList {
    deliveries: Vec<WebhookDelivery>,
    /// Value of `after` for the next page; missing on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
}

/// List the deliveries of a webhook endpoint
///
/// Newest event first, each with its last attempts. Deliveries are retained for 30 days by default.
#[utoipa::path(
    get, path = "/api/v1/webhook-endpoints/{endpoint_id}/deliveries", tag = "webhooks",
    security(("api_key" = ["webhooks"])),
    params(("endpoint_id" = String, Path, description = "Id of the webhook endpoint"), ListDeliveriesQuery),
    responses(
        (status = 200, description = "A page of deliveries", body = WebhookDeliveryList),
        (status = 400, description = "malformed_query",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found: no webhook endpoint with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn list_webhook_deliveries(
    State(app): State<Arc<App>>,
    WebhookReader(caller): WebhookReader,
    Path(id): Path<String>,
    Query(query): Query<ListDeliveriesQuery>,
) -> Result<Json<WebhookDeliveryList>, ApiError> {
    let id = endpoint_id(&id)?;
    let limit = page_limit(query.limit)?;
    let filter = filter(&query)?;
    let mut connection = app.reads.pool().acquire().await?;
    find(&mut connection, &caller, &id).await?;
    let deliveries = deliveries::list(&mut connection, &id, filter, limit).await?;
    let next = next_cursor(&deliveries, limit, |delivery| &delivery.event_id);
    Ok(Json(WebhookDeliveryList {
        deliveries: deliveries.into_iter().map(WebhookDelivery::from).collect(),
        next,
    }))
}

fn filter(query: &ListDeliveriesQuery) -> Result<DeliveryFilter<'_>, Problem> {
    let state = query
        .state
        .as_deref()
        .map(|text| {
            DeliveryState::parse(text)
                .ok_or_else(|| malformed_query("state must be one of pending, delivered, failed".into()))
        })
        .transpose()?;
    let is_event_id =
        |id: &str| (1..=EVENT_ID_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    if query.after.as_deref().is_some_and(|id| !is_event_id(id)) {
        return Err(malformed_query("after must be the id of an event".into()));
    }
    Ok(DeliveryFilter { state, after: query.after.as_deref() })
}
