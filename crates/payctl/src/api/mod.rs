//! A client of the payments API, with a customer's rights.
//!
//! Every call is sent once; the caller decides whether a retry is safe. A missing response and a refusal
//! are different errors, because a payment request without a response may have been accepted.

mod documents;
mod error;

use std::time::Duration;

use anyhow::Context as _;
use idempotency::IdempotencyKey;
use payment_protocol::ids::PaymentId;
use reqwest::redirect::Policy;
use reqwest::{RequestBuilder, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::{DeserializeOwned, IgnoredAny};

pub(crate) use documents::{
    AccountDocument, PaymentAcceptance, PaymentDocument, PaymentRequest, TimelineStep,
    WebhookEndpointDocument, WebhookEndpointRequest,
};
pub(crate) use error::ApiError;

use service_kit::published::DEMO_API_KEY;

/// Time for one call, beyond the time the server is requested to wait.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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

/// HTTP client of the payments API.
#[derive(Debug)]
pub(crate) struct ApiClient {
    http: reqwest::Client,
    base: String,
    key: SecretString,
}

/// A successful response, parsed and as received.
#[derive(Debug)]
pub(crate) struct ApiResponse<T> {
    /// The parsed document.
    pub(crate) document: T,
    /// The body as received, for `--json`.
    pub(crate) body: String,
}

impl ApiArgs {
    /// Builds a client. Sends nothing.
    ///
    /// # Errors
    /// The URL is not an HTTP URL, or the HTTP client cannot be built.
    pub(crate) fn client(&self) -> anyhow::Result<ApiClient> {
        let http = http_client(&self.url).context("--url (PAYMENTS_API_URL) cannot be called")?;
        Ok(ApiClient {
            http,
            base: self.url.as_str().trim_end_matches('/').to_owned(),
            key: self.key.clone(),
        })
    }

    /// The URL without a slash at its end.
    pub(crate) fn url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }
}

/// Builds a client for this URL. Sends nothing, and never follows a redirect.
///
/// # Errors
/// The URL is not an HTTP URL, or the client cannot be built.
pub(crate) fn http_client(url: &Url) -> anyhow::Result<reqwest::Client> {
    let has_tls = match url.scheme() {
        "http" => false,
        "https" => true,
        // Not repeated here: it may hold a password.
        _ => anyhow::bail!("it is not an HTTP URL; write it like http://127.0.0.1:8080"),
    };
    // Fails if a provider is installed already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut http = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::none())
        .user_agent(concat!("payctl/", env!("CARGO_PKG_VERSION")));
    if !has_tls {
        // Plain HTTP works on a machine without certificates.
        http = http.tls_certs_only([]);
    }
    if is_local(url) {
        http = http.no_proxy();
    }
    http.build().context("the HTTP client cannot be built")
}

/// Whether the address is this machine's own, which no proxy can reach.
pub(crate) fn is_local(url: &Url) -> bool {
    url.host_str().is_some_and(link_kit::is_this_machine)
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
        let request = self.http.post(format!("{}/api/v1/payments", self.base));
        self.call(request.header("Idempotency-Key", key.as_str()).json(payment), Duration::ZERO).await
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
        let request = self.http.post(format!("{}/api/v1/payments/{id}/cancel", self.base));
        self.call(request.header("Idempotency-Key", key.as_str()), Duration::ZERO).await
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
        let request = self.http.get(format!("{}/api/v1/payments/{id}?wait={wait_s}", self.base));
        self.call(request, Duration::from_secs(wait_s)).await
    }

    /// Reads one of the caller's accounts.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(crate) async fn account(&self, id: &str) -> Result<ApiResponse<AccountDocument>, ApiError> {
        self.call(self.http.get(format!("{}/api/v1/accounts/{id}", self.base)), Duration::ZERO).await
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
        let request = self.http.post(format!("{}/api/v1/webhook-endpoints", self.base));
        self.call(request.header("Idempotency-Key", key.as_str()).json(endpoint), Duration::ZERO).await
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
        let request = self.http.delete(format!("{}/api/v1/webhook-endpoints/{id}", self.base));
        let request = request.header("Idempotency-Key", key.as_str());
        self.call::<IgnoredAny>(request, Duration::ZERO).await.map(drop)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        wait: Duration,
    ) -> Result<ApiResponse<T>, ApiError> {
        let no_response = |source: reqwest::Error| ApiError::no_response(&self.base, source);
        let request = request.bearer_auth(self.key.expose_secret()).timeout(CALL_TIMEOUT + wait);
        let response = request.send().await.map_err(no_response)?;
        let status = response.status();
        let body = response.text().await.map_err(no_response)?;
        if !status.is_success() {
            return Err(ApiError::refused(status, &body));
        }
        match serde_json::from_str(&body) {
            Ok(document) => Ok(ApiResponse { document, body }),
            Err(source) => Err(ApiError::Unreadable { url: self.base.clone(), source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(url: &str) -> ApiArgs {
        ApiArgs { url: url.parse().unwrap(), key: "k".into() }
    }

    #[test]
    fn the_payctl_api_url_must_be_http_and_loses_its_trailing_slash() {
        assert_eq!(args("http://127.0.0.1:8080/").client().unwrap().base, "http://127.0.0.1:8080");
        assert_eq!(args("http://host/bank/").client().unwrap().base, "http://host/bank");
        assert!(args("ftp://host").client().is_err());
    }

    #[test]
    fn payctl_bypasses_a_proxy_for_loopback_addresses_only() {
        for (url, local) in [
            ("http://localhost:1", true),
            ("http://127.0.0.1", true),
            ("http://[::1]:80", true),
            ("http://localhost.example", false),
            ("http://127.0.0.1.example", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_local(&url.parse().unwrap()), local, "{url}");
        }
    }
}
