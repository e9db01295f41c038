//! Calls of one HTTP API of the service: with a bearer token, each sent once, each bounded.

use std::time::Duration;

use anyhow::Context as _;
use reqwest::redirect::Policy;
use reqwest::{RequestBuilder, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;

use super::ApiError;

/// Time for one call, beyond the time the server is requested to wait.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection is kept for the next request.
const KEPT_IDLE: Duration = Duration::from_secs(5);

/// An API, in messages.
#[derive(Debug)]
pub(crate) struct Service {
    /// Its name.
    pub(crate) name: &'static str,
    /// What names its address.
    pub(crate) setting: &'static str,
    /// The process that serves it.
    pub(crate) process: &'static str,
}

/// The address of an API and the caller's token.
#[derive(Debug)]
pub(crate) struct Connection {
    service: &'static Service,
    http: reqwest::Client,
    base: String,
    token: SecretString,
}

/// A successful response, parsed and as received.
#[derive(Debug)]
pub(crate) struct ApiResponse<T> {
    /// The parsed document.
    pub(crate) document: T,
    /// The body as received, for `--json`.
    pub(crate) body: String,
}

impl Connection {
    /// Builds a connection. Sends nothing.
    ///
    /// # Errors
    /// The URL is not an HTTP URL, or the HTTP client cannot be built.
    pub(crate) fn new(service: &'static Service, url: &Url, token: SecretString) -> anyhow::Result<Self> {
        let base = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { service, http: http_client(url)?, base, token })
    }

    /// A GET request of a path.
    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.base))
    }

    /// A POST request to a path.
    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.http.post(format!("{}{path}", self.base))
    }

    /// A DELETE request of a path.
    pub(crate) fn delete(&self, path: &str) -> RequestBuilder {
        self.http.delete(format!("{}{path}", self.base))
    }

    /// Sends a request once. `wait` is how long the server is requested to wait.
    ///
    /// # Errors
    /// [`ApiError`]; see [`ApiError::may_have_taken_effect`].
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        wait: Duration,
    ) -> Result<ApiResponse<T>, ApiError> {
        let no_response = |source: reqwest::Error| ApiError::no_response(self.service, &self.base, source);
        let request = request.bearer_auth(self.token.expose_secret()).timeout(CALL_TIMEOUT + wait);
        let response = request.send().await.map_err(no_response)?;
        let status = response.status();
        let body = response.text().await.map_err(no_response)?;
        if !status.is_success() {
            return Err(ApiError::refused(self.service, status, &body));
        }
        // 204 No Content.
        let text = if body.is_empty() { "null" } else { &body };
        match serde_json::from_str(text) {
            Ok(document) => Ok(ApiResponse { document, body }),
            Err(source) => {
                Err(ApiError::Unreadable { service: self.service, url: self.base.clone(), source })
            }
        }
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
        // A service closes an idle connection after 20 s, and may do so while a request is sent on it.
        .pool_idle_timeout(KEPT_IDLE)
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

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Service = Service { name: "n", setting: "s", process: "p" };

    fn connection(url: &str) -> anyhow::Result<Connection> {
        Connection::new(&SERVICE, &url.parse().unwrap(), "k".into())
    }

    #[test]
    fn the_payctl_api_url_must_be_http_and_loses_its_trailing_slash() {
        assert_eq!(connection("http://127.0.0.1:8080/").unwrap().base, "http://127.0.0.1:8080");
        assert_eq!(connection("http://host/bank/").unwrap().base, "http://host/bank");
        assert!(connection("ftp://host").is_err());
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
