//! The payments API, as a customer uses it.
//!
//! Every call is asked once: repeating is for the caller, who knows what it means. A call without an
//! answer is told from a refusal, because a payment without an answer may have been accepted.

mod error;
mod wire;

use std::time::Duration;

use anyhow::Context as _;
use idempotency::IdempotencyKey;
use payment_protocol::ids::PaymentId;
use reqwest::redirect::Policy;
use reqwest::{RequestBuilder, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;

pub(crate) use error::ApiError;
pub(crate) use wire::{Accepted, Account, Order, Payment, Step};

use crate::commands::demo::DEMO_KEY;

/// Time for one call, beyond what it asks the server to wait.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to find out that nobody follows_switch.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the API is, and who calls.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ApiArgs {
    /// The payments API
    #[arg(long, env = "PAYMENTS_API_URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    /// API key; from the environment, other users of the machine do not see it
    #[arg(long, env = "PAYMENTS_API_KEY", default_value = DEMO_KEY, hide_env_values = true)]
    key: SecretString,
}

/// Talks to the API.
#[derive(Debug)]
pub(crate) struct Api {
    http: reqwest::Client,
    base: String,
    key: SecretString,
}

/// An answer, read and as it came.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    /// What it says.
    pub(crate) read: T,
    /// The document, for programs.
    pub(crate) document: String,
}

impl ApiArgs {
    /// A client of the API. Nothing is sent yet.
    ///
    /// # Errors
    /// When the URL is not of http, or the client cannot be made.
    pub(crate) fn client(&self) -> anyhow::Result<Api> {
        let plain = match self.url.scheme() {
            "http" => true,
            "https" => false,
            _ => anyhow::bail!("--url (PAYMENTS_API_URL) is not like http://127.0.0.1:8080"),
        };
        // Refused when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            .user_agent(concat!("payctl/", env!("CARGO_PKG_VERSION")));
        if plain {
            // A machine without any certificates can still speak plain http.
            http = http.tls_certs_only([]);
        }
        if is_local(&self.url) {
            http = http.no_proxy();
        }
        Ok(Api {
            http: http.build().context("the HTTP client could not be made")?,
            base: self.url.as_str().trim_end_matches('/').to_owned(),
            key: self.key.clone(),
        })
    }

    /// The URL as it was given.
    pub(crate) fn url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }
}

/// Whether the address is this machine's own; no proxy can reach that one.
pub(crate) fn is_local(url: &Url) -> bool {
    matches!(url.host_str(), Some(host) if host == "localhost" || host.starts_with("127.") || host == "[::1]")
}

impl Api {
    /// Asks for a payment to be made, once per key.
    ///
    /// # Errors
    /// [`ApiError`]; see [`ApiError::leaves_unknown`].
    pub(crate) async fn pay(
        &self,
        order: &Order<'_>,
        key: &IdempotencyKey,
    ) -> Result<Answer<Accepted>, ApiError> {
        let request = self.http.post(format!("{}/api/v1/payments", self.base));
        self.call(request.header("Idempotency-Key", key.as_str()).json(order), Duration::ZERO).await
    }

    /// A payment, after at most `wait_s` seconds or once it has ended.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(crate) async fn payment(&self, id: &PaymentId, wait_s: u64) -> Result<Answer<Payment>, ApiError> {
        let request = self.http.get(format!("{}/api/v1/payments/{id}?wait={wait_s}", self.base));
        self.call(request, Duration::from_secs(wait_s)).await
    }

    /// One of the caller's accounts.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(crate) async fn account(&self, id: &str) -> Result<Answer<Account>, ApiError> {
        self.call(self.http.get(format!("{}/api/v1/accounts/{id}", self.base)), Duration::ZERO).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        wait: Duration,
    ) -> Result<Answer<T>, ApiError> {
        let no_answer = |source: reqwest::Error| ApiError::no_answer(&self.base, source);
        let request = request.bearer_auth(self.key.expose_secret()).timeout(CALL_TIMEOUT + wait);
        let response = request.send().await.map_err(no_answer)?;
        let status = response.status();
        let document = response.text().await.map_err(no_answer)?;
        if !status.is_success() {
            return Err(ApiError::refused(status, &document));
        }
        match serde_json::from_str(&document) {
            Ok(read) => Ok(Answer { read, document }),
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
    fn the_url_is_of_http_and_its_end_does_not_matter() {
        assert_eq!(args("http://127.0.0.1:8080/").client().unwrap().base, "http://127.0.0.1:8080");
        assert_eq!(args("http://host/bank/").client().unwrap().base, "http://host/bank");
        assert!(args("ftp://host").client().is_err());
    }

    #[test]
    fn only_the_machines_own_addresses_go_past_a_proxy() {
        for (url, local) in [
            ("http://localhost:1", true),
            ("http://127.0.0.1", true),
            ("http://[::1]:80", true),
            ("http://localhost.example", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_local(&url.parse().unwrap()), local, "{url}");
        }
    }
}
