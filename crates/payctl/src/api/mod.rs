//! A client of the payments API, with a customer's rights.
//!
//! Every call is sent once; the caller decides whether a retry is safe. A missing response and a refusal
//! are different errors, because a payment request without a response may have been accepted.

mod connection;
mod documents;
mod error;

use std::time::Duration;

use anyhow::Context as _;
use idempotency::IdempotencyKey;
use payment_protocol::ids::PaymentId;
use reqwest::Url;
use secrecy::SecretString;
use serde::de::IgnoredAny;

pub(crate) use connection::{ApiResponse, Connection, Service, http_client, is_local};
pub(crate) use documents::{
    AccountDocument, PaymentAcceptance, PaymentDocument, PaymentRequest, TimelineStep,
    WebhookEndpointDocument, WebhookEndpointRequest,
};
pub(crate) use error::ApiError;

use service_kit::published::DEMO_API_KEY;

/// The payments API, in messages.
const PAYMENTS_API: Service =
    Service { name: "payments API", setting: "--url (PAYMENTS_API_URL)", process: "payments-api" };

/// Address of the API and the caller's key.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ApiArgs {
    /// URL of the payments API
    #[arg(long, env = "PAYMENTS_API_URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    /// API key; set it in the environment, other users of this machine can read the command line
    #[arg(long, env = "PAYMENTS_API_KEY", default_value = DEMO_API_KEY, hide_env_values = true)]
    key: SecretString,
}

/// Client of the payments API.
#[derive(Debug)]
pub(crate) struct ApiClient(Connection);

impl ApiArgs {
    /// Builds a client. Sends nothing.
    ///
    /// # Errors
    /// The URL is not an HTTP URL, or the HTTP client cannot be built.
    pub(crate) fn client(&self) -> anyhow::Result<ApiClient> {
        let connection = Connection::new(&PAYMENTS_API, &self.url, self.key.clone());
        Ok(ApiClient(connection.context("--url (PAYMENTS_API_URL) cannot be called")?))
    }

    /// The URL without a slash at its end.
    pub(crate) fn url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }
}

impl ApiClient {
    /// Requests a payment; the API accepts it at most once per key.
    ///
    /// # Errors
    /// [`ApiError`]; see [`ApiError::may_have_taken_effect`].
    pub(crate) async fn pay(
        &self,
        payment: &PaymentRequest<'_>,
        key: &IdempotencyKey,
    ) -> Result<ApiResponse<PaymentAcceptance>, ApiError> {
        let request = self.0.post("/api/v1/payments");
        self.0.call(request.header("Idempotency-Key", key.as_str()).json(payment), Duration::ZERO).await
    }

    /// Requests the cancel of a payment.
    ///
    /// # Errors
    /// [`ApiError`]; see [`ApiError::may_have_taken_effect`].
    pub(crate) async fn cancel(
        &self,
        id: &PaymentId,
        key: &IdempotencyKey,
    ) -> Result<ApiResponse<IgnoredAny>, ApiError> {
        let request = self.0.post(&format!("/api/v1/payments/{id}/cancel"));
        self.0.call(request.header("Idempotency-Key", key.as_str()), Duration::ZERO).await
    }

    /// Reads a payment. The API answers once the payment has ended, after `wait_s` seconds at the latest.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(crate) async fn payment(
        &self,
        id: &PaymentId,
        wait_s: u64,
    ) -> Result<ApiResponse<PaymentDocument>, ApiError> {
        let request = self.0.get(&format!("/api/v1/payments/{id}?wait={wait_s}"));
        self.0.call(request, Duration::from_secs(wait_s)).await
    }

    /// Reads one of the caller's accounts.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(crate) async fn account(&self, id: &str) -> Result<ApiResponse<AccountDocument>, ApiError> {
        self.0.call(self.0.get(&format!("/api/v1/accounts/{id}")), Duration::ZERO).await
    }

    /// Creates a webhook endpoint of the caller's tenant.
    ///
    /// # Errors
    /// [`ApiError`]; see [`ApiError::may_have_taken_effect`].
    pub(crate) async fn create_webhook_endpoint(
        &self,
        endpoint: &WebhookEndpointRequest<'_>,
        key: &IdempotencyKey,
    ) -> Result<ApiResponse<WebhookEndpointDocument>, ApiError> {
        let request = self.0.post("/api/v1/webhook-endpoints");
        self.0.call(request.header("Idempotency-Key", key.as_str()).json(endpoint), Duration::ZERO).await
    }

    /// Deletes a webhook endpoint with its deliveries.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(crate) async fn delete_webhook_endpoint(
        &self,
        id: &str,
        key: &IdempotencyKey,
    ) -> Result<(), ApiError> {
        let request = self.0.delete(&format!("/api/v1/webhook-endpoints/{id}"));
        let request = request.header("Idempotency-Key", key.as_str());
        self.0.call::<IgnoredAny>(request, Duration::ZERO).await.map(drop)
    }
}
