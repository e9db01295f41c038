//! JSON views of endpoints and deliveries.

use idempotency::StoredResponse;
use jiff::Timestamp;
use openapi_kit::documented_enum;
use outbound_webhooks::EndpointId;
use outbound_webhooks::deliveries::{Delivery, DeliveryAttempt, DeliveryState};
use outbound_webhooks::endpoints::{DisabledReason, Endpoint, EndpointStatus};
use outbound_webhooks::secret::MasterKey;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;

documented_enum!(pub(super) WebhookEndpointStatus, EndpointStatus, "Whether a webhook endpoint receives events.");
documented_enum!(
    pub(super) WebhookEndpointDisabledReason, DisabledReason,
    "Why a webhook endpoint is disabled: by the tenant, by an operator of the bank, because it responded 410, or because every \
     attempt failed for days."
);
documented_enum!(pub(super) WebhookDeliveryState, DeliveryState, "State of the delivery of an event.");

/// A webhook endpoint, without its secret.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct WebhookEndpoint {
    /// Id of the endpoint.
    #[schema(example = "whe_0f8fad5bd9cb469fa16570867728950e")]
    endpoint_id: String,
    /// URL that receives the events.
    #[schema(example = "https://bank.example/hooks")]
    url: String,
    /// Kinds of events that are delivered; an empty list means all.
    kinds: Vec<String>,
    /// Whether the endpoint receives events.
    #[schema(value_type = WebhookEndpointStatus)]
    status: String,
    /// Why the endpoint is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<WebhookEndpointDisabledReason>, nullable = false)]
    disabled_reason: Option<String>,
    /// Note of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    disabled_note: Option<String>,
    /// Version of the current secret, from 1.
    secret_version: i32,
    /// Until when the previous secret signs, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    old_secret_until: Option<Timestamp>,
    /// Since when every attempt has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    failing_since: Option<Timestamp>,
    /// When the endpoint was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When the secret was last rotated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    rotated_at: Option<Timestamp>,
}

/// A webhook endpoint with its signing secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookEndpointWithSecret {
    #[serde(flatten)]
    endpoint: WebhookEndpoint,
    /// Signing secret in the form of Standard Webhooks.
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    secret: String,
}

impl WebhookEndpoint {
    pub(super) fn of(endpoint: Endpoint) -> Self {
        Self {
            endpoint_id: endpoint.id.to_string(),
            url: endpoint.url,
            kinds: endpoint.kinds,
            status: endpoint.status.as_str().to_owned(),
            disabled_reason: endpoint.disabled_reason.map(|reason| DisabledReason::as_str(reason).to_owned()),
            disabled_note: endpoint.disabled_note,
            secret_version: endpoint.secret_version,
            old_secret_until: endpoint.old_secret_until,
            failing_since: endpoint.failing_since,
            created_at: endpoint.created_at,
            rotated_at: endpoint.rotated_at,
        }
    }

    /// The stored response. It never contains the secret.
    pub(super) fn to_response(&self, status: u16) -> Result<StoredResponse, ApiError> {
        Ok(StoredResponse::new(status, serde_json::to_vec(self)?))
    }
}

/// Adds the secret, derived again, to a stored response; the same for the first response and its replays.
pub(super) fn with_secret(
    response: StoredResponse,
    master_key: &MasterKey,
) -> Result<StoredResponse, ApiError> {
    let endpoint: WebhookEndpoint = serde_json::from_slice(&response.body)?;
    let Ok(id) = EndpointId::new(endpoint.endpoint_id.as_str()) else { return Ok(response) };
    let secret = master_key.encoded_secret(&id, endpoint.secret_version).expose_secret().to_owned();
    let body = serde_json::to_vec(&WebhookEndpointWithSecret { endpoint, secret })?;
    Ok(StoredResponse::new(response.status, body))
}

/// One delivery attempt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookDeliveryAttempt {
    /// When the attempt ended.
    #[schema(value_type = String, format = DateTime)]
    ended_at: Timestamp,
    /// Duration in milliseconds.
    duration_ms: i64,
    /// HTTP status of the response; missing without a response.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    response_status: Option<i32>,
    /// Why the attempt failed; missing after a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<String>,
    /// Beginning of the response body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    response_body: Option<String>,
}

/// The delivery of one event to the endpoint.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookDelivery {
    /// Id of the event, sent as `webhook-id`.
    event_id: String,
    /// Kind of the event.
    kind: String,
    /// State of the delivery.
    #[schema(value_type = WebhookDeliveryState)]
    state: &'static str,
    /// Number of failed attempts since the delivery was created or replayed.
    failed_attempts: i32,
    /// When the next attempt is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    next_attempt_at: Option<Timestamp>,
    /// When the delivery was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When the event was delivered, or the delivery failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    ended_at: Option<Timestamp>,
    /// The last attempts, oldest first.
    attempts: Vec<WebhookDeliveryAttempt>,
}

impl From<DeliveryAttempt> for WebhookDeliveryAttempt {
    fn from(attempt: DeliveryAttempt) -> Self {
        let DeliveryAttempt { ended_at, duration_ms, response_status, error, response_excerpt } = attempt;
        Self { ended_at, duration_ms, response_status, error, response_body: response_excerpt }
    }
}

impl From<Delivery> for WebhookDelivery {
    fn from(delivery: Delivery) -> Self {
        Self {
            event_id: delivery.event_id,
            kind: delivery.kind,
            state: delivery.state.as_str(),
            failed_attempts: delivery.failed_attempts,
            next_attempt_at: delivery.next_attempt_at,
            created_at: delivery.created_at,
            ended_at: delivery.ended_at,
            attempts: delivery.attempts.into_iter().map(WebhookDeliveryAttempt::from).collect(),
        }
    }
}
