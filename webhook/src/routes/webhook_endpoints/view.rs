//! What endpoints and deliveries look like to their tenant.

use idempotency::Answer;
use jiff::Timestamp;
use outbound_webhooks::EndpointId;
use outbound_webhooks::deliveries::{Delivery, DeliveryAttempt};
use outbound_webhooks::endpoints::{DisabledReason, Endpoint};
use outbound_webhooks::secret::MasterKey;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;

/// An endpoint as it stands, without its secret.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct WebhookEndpoint {
    /// Its id.
    #[schema(example = "whe_0f8fad5bd9cb469fa16570867728950e")]
    endpoint_id: String,
    /// Where it is.
    #[schema(example = "https://bank.example/hooks")]
    url: String,
    /// What it is told of; an empty list means everything.
    kinds: Vec<String>,
    /// `active` or `disabled`.
    status: String,
    /// Why it is disabled: `asked`, `operator` (by the bank's own people), `gone` (it answered 410), `failing` (every
    /// attempt failed for days).
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled_for: Option<String>,
    /// The same in somebody's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled_note: Option<String>,
    /// Which of its secrets is the current one, from 1.
    secret_version: i32,
    /// Until when the secret before signs, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    old_secret_until: Option<Timestamp>,
    /// Since when no attempt has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    failing_since: Option<Timestamp>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    made_at: Timestamp,
    /// When its secret was last rotated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    rotated_at: Option<Timestamp>,
}

/// An endpoint with the secret that verifies what it is sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookEndpointWithSecret {
    #[serde(flatten)]
    endpoint: WebhookEndpoint,
    /// As Standard Webhooks has it.
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
            disabled_for: endpoint.disabled_for.map(|reason| DisabledReason::as_str(reason).to_owned()),
            disabled_note: endpoint.disabled_note,
            secret_version: endpoint.secret_version,
            old_secret_until: endpoint.old_secret_until,
            failing_since: endpoint.failing_since,
            made_at: endpoint.made_at,
            rotated_at: endpoint.rotated_at,
        }
    }

    /// As an answer. Answers are stored for their repeats, and no secret is.
    pub(super) fn answer(self, status: u16) -> Result<Answer, ApiError> {
        Ok(Answer::new(status, serde_json::to_vec(&self)?))
    }
}

/// The answer as it goes out: with the secret, which is made anew each time. The same for a first answer and its repeat.
pub(super) fn with_secret(answer: Answer, master_key: &MasterKey) -> Result<Answer, ApiError> {
    let endpoint: WebhookEndpoint = serde_json::from_slice(&answer.body)?;
    let Ok(id) = EndpointId::new(endpoint.endpoint_id.as_str()) else { return Ok(answer) };
    let secret = master_key.encoded_secret(&id, endpoint.secret_version).expose_secret().to_owned();
    let body = serde_json::to_vec(&WebhookEndpointWithSecret { endpoint, secret })?;
    Ok(Answer::new(answer.status, body))
}

/// One attempt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookAttempt {
    /// When it was over.
    #[schema(value_type = String, format = DateTime)]
    ended_at: Timestamp,
    /// How long it took, in milliseconds.
    took_ms: i64,
    /// The status that was answered; missing where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    /// Why it was no success.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The beginning of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
}

/// What became of one event at the endpoint.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookDelivery {
    /// The event, sent as `webhook-id`.
    event_id: String,
    /// Its kind.
    kind: String,
    /// `pending`, `delivered` or `failed`.
    state: &'static str,
    /// Attempts that failed since it was made or replayed.
    tries: i32,
    /// When the next attempt is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    next_at: Option<Timestamp>,
    /// When the event was taken in.
    #[schema(value_type = String, format = DateTime)]
    made_at: Timestamp,
    /// When it was delivered, or given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
    /// The last attempts, the oldest first.
    attempts: Vec<WebhookAttempt>,
}

impl From<DeliveryAttempt> for WebhookAttempt {
    fn from(attempt: DeliveryAttempt) -> Self {
        let DeliveryAttempt { ended_at, took_ms, status, error, answer } = attempt;
        Self { ended_at, took_ms, status, error, answer }
    }
}

impl From<Delivery> for WebhookDelivery {
    fn from(delivery: Delivery) -> Self {
        Self {
            event_id: delivery.event_id,
            kind: delivery.kind,
            state: delivery.state.as_str(),
            tries: delivery.tries,
            next_at: delivery.next_at,
            made_at: delivery.made_at,
            ended_at: delivery.ended_at,
            attempts: delivery.attempts.into_iter().map(WebhookAttempt::from).collect(),
        }
    }
}
