//! `GET /api/v1/webhook-endpoints/{endpoint_id}/deliveries`: what was sent, and what came of it.

use std::sync::Arc;

use axum::extract::State;
use outbound_webhooks::deliveries::{self, DeliveryFilter, DeliveryState};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem, Query};
use utoipa::{IntoParams, ToSchema};

use super::view::WebhookDelivery;
use super::{endpoint_id, find};
use crate::app::App;
use crate::auth::WebhookReader;
use crate::error::ApiError;
use crate::routes::docs::ProblemDocument;

/// Deliveries on a page when nothing is said.
const LIMIT_DEFAULT: i64 = 50;
/// Deliveries on a page at most.
const LIMIT_MAX: i64 = 200;
/// Longest event id that is looked for, in characters.
const EVENT_ID_MAX: usize = 256;

/// Which deliveries. All conditions must hold.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only in this state.
    #[param(pattern = "^(pending|delivered|failed)$")]
    state: Option<String>,
    /// At most so many. Default 50.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<i64>,
    /// Only after this event in the list: `next` of the page before.
    #[param(min_length = 1, max_length = 256, pattern = "^[!-~]+$")]
    after: Option<String>,
}

/// A page of deliveries, the newest event first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookDeliveries {
    deliveries: Vec<WebhookDelivery>,
    /// Value of `after` for the next page; missing on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List what was sent to a webhook endpoint
///
/// Newest first, each with its last attempts. Kept for 30 days, unless the service is set up otherwise.
#[utoipa::path(
    get, path = "/api/v1/webhook-endpoints/{endpoint_id}/deliveries", tag = "webhooks",
    security(("api_key" = ["webhooks"])),
    params(("endpoint_id" = String, Path, description = "From its creation"), Which),
    responses(
        (status = 200, description = "A page", body = WebhookDeliveries),
        (status = 400, description = "malformed_query",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "endpoint_not_found; another tenant's endpoint is not found either",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn list_webhook_deliveries(
    State(app): State<Arc<App>>,
    WebhookReader(caller): WebhookReader,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Result<Json<WebhookDeliveries>, ApiError> {
    let id = endpoint_id(&id)?;
    let limit = which.limit.unwrap_or(LIMIT_DEFAULT);
    let filter = filter(&which)?;
    let mut connection = app.ledger.pool().acquire().await?;
    find(&mut connection, &caller, &id).await?;
    let found = deliveries::list(&mut connection, &id, filter, limit).await?;
    let full = i64::try_from(found.len()).is_ok_and(|count| count == limit);
    let next = if full { found.last().map(|delivery| delivery.event_id.clone()) } else { None };
    Ok(Json(WebhookDeliveries { deliveries: found.into_iter().map(WebhookDelivery::from).collect(), next }))
}

fn filter(which: &Which) -> Result<DeliveryFilter<'_>, Problem> {
    let refused = |detail: String| Problem::bad_request("malformed_query", detail);
    if !(1..=LIMIT_MAX).contains(&which.limit.unwrap_or(LIMIT_DEFAULT)) {
        return Err(refused(format!("limit must be from 1 to {LIMIT_MAX}")));
    }
    let state = which
        .state
        .as_deref()
        .map(|word| {
            DeliveryState::parse(word)
                .ok_or_else(|| refused("state must be one of pending, delivered, failed".into()))
        })
        .transpose()?;
    let is_event_id =
        |id: &str| (1..=EVENT_ID_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    if which.after.as_deref().is_some_and(|id| !is_event_id(id)) {
        return Err(refused("after is not the id of an event".into()));
    }
    Ok(DeliveryFilter { state, after: which.after.as_deref() })
}
