//! The provider's discovery document and its keys, read when a login needs them and kept for an hour. Source: OpenID Connect Discovery 1.0.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::JwkSet;
use link_kit::{Link, LinkFileError, PlaintextRefused, read_authorities};
use reqwest::{Certificate, Client, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use service_kit::error_chain;
use tokio::sync::Mutex;

use crate::config::OidcOptions;

/// Time of each request to the provider.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long keys are used without being read again.
const KEPT_FOR: Duration = Duration::from_secs(3600);
/// Pause between two reads that tokens with an unknown key cause: anybody can send such a token.
const NEW_KEY_PAUSE: Duration = Duration::from_secs(30);
/// Pause after a read that failed, in which all logins are answered at once.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
/// Upper bound of a document, in bytes.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// An option of the section `[operator_api.oidc]` is refused at start-up.
#[derive(Debug, thiserror::Error)]
pub enum OidcSetupError {
    /// The issuer is no URL.
    #[error("operator_api.oidc.issuer is no https URL, as the provider's discovery document has it")]
    Issuer,
    /// There is no client.
    #[error("operator_api.oidc.client_id is empty; it is the id of payctl's client at the provider")]
    ClientId,
    /// The provider is on another machine, and the link to it is not encrypted.
    #[error(transparent)]
    Plaintext(#[from] PlaintextRefused),
    /// A file of the link cannot be used.
    #[error(transparent)]
    File(#[from] LinkFileError),
    /// The HTTP client cannot be built.
    #[error("the HTTP client for operator_api.oidc.issuer cannot be built")]
    Http(#[source] reqwest::Error),
}

/// The provider gave no usable answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the OpenID provider {issuer} cannot be used: {detail}")]
pub(crate) struct ProviderUnavailable {
    issuer: String,
    detail: String,
}

/// Where operators log in.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Endpoints {
    /// In a browser.
    pub(crate) authorization_endpoint: String,
    /// Where a client exchanges a code for a token.
    pub(crate) token_endpoint: String,
    /// For a device without a browser; missing if the provider offers none.
    #[serde(default)]
    pub(crate) device_authorization_endpoint: Option<String>,
}

/// The discovery document.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
    #[serde(flatten)]
    endpoints: Endpoints,
}

/// What is known of the provider.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) endpoints: Endpoints,
    pub(super) keys: JwkSet,
    read_at: Instant,
}

#[derive(Debug)]
pub(super) struct Provider {
    issuer: String,
    http: Client,
    accepts_plaintext: bool,
    last: std::sync::Mutex<Last>,
    /// Held while the provider is read, so that logins at the same moment read it once.
    reading: Mutex<()>,
}

#[derive(Debug, Default)]
struct Last {
    known: Option<Arc<Known>>,
    failed: Option<(Instant, ProviderUnavailable)>,
}

impl Provider {
    pub(super) fn new(options: OidcOptions) -> Result<Self, OidcSetupError> {
        let url: Url = options.issuer.parse().map_err(|_| OidcSetupError::Issuer)?;
        let link = link(&url).ok_or(OidcSetupError::Issuer)?;
        if link == Link::Plaintext && !options.allow_plaintext {
            return Err(OidcSetupError::Plaintext(PlaintextRefused {
                setting: "operator_api.oidc.issuer",
                remedy: "use an https URL",
                accept: "operator_api.oidc.allow_plaintext",
            }));
        }
        // Fails if a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
        if link != Link::Tls {
            http = http.tls_certs_only([]).no_proxy();
        } else if let Some(path) = &options.ca_path {
            let setting = "operator_api.oidc.ca_path";
            let authorities = Certificate::from_pem_bundle(&read_authorities(setting, path)?);
            http =
                http.tls_certs_only(authorities.map_err(|error| LinkFileError::new(setting, path, error))?);
        }
        let http = http.build().map_err(OidcSetupError::Http)?;
        let (issuer, accepts_plaintext) = (options.issuer, options.allow_plaintext);
        Ok(Self { issuer, http, accepts_plaintext, last: Default::default(), reading: Mutex::default() })
    }

    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// What is known of the provider, read at most an hour ago.
    pub(super) async fn known(&self) -> Result<Arc<Known>, ProviderUnavailable> {
        self.known_since(KEPT_FOR).await
    }

    /// The same, read just now: a token names a key that was not known.
    pub(super) async fn known_after_new_key(&self) -> Result<Arc<Known>, ProviderUnavailable> {
        self.known_since(NEW_KEY_PAUSE).await
    }

    async fn known_since(&self, age_max: Duration) -> Result<Arc<Known>, ProviderUnavailable> {
        if let Some(known) = self.fresh(age_max) {
            return Ok(known);
        }
        let _reading = self.reading.lock().await;
        // It may have been read meanwhile.
        if let Some(known) = self.fresh(age_max) {
            return Ok(known);
        }
        let failed = self.last(|last| last.failed.clone());
        if let Some((_, failure)) = failed.filter(|(at, _)| at.elapsed() < FAILURE_PAUSE) {
            return Err(failure);
        }
        let unavailable = |detail: String| ProviderUnavailable { issuer: self.issuer.clone(), detail };
        // A caller that goes away ends its read, which counts as one.
        let abandoned = unavailable("a read of it was given up".to_owned());
        self.last(|last| last.failed = Some((Instant::now(), abandoned)));
        let known = self.read().await.map(Arc::new).map_err(unavailable);
        self.last(|last| match &known {
            Ok(known) => *last = Last { known: Some(Arc::clone(known)), failed: None },
            Err(failure) => last.failed = Some((Instant::now(), failure.clone())),
        });
        known
    }

    fn fresh(&self, age_max: Duration) -> Option<Arc<Known>> {
        self.last(|last| last.known.clone()).filter(|known| known.read_at.elapsed() < age_max)
    }

    fn last<T>(&self, access: impl FnOnce(&mut Last) -> T) -> T {
        access(&mut self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn read(&self) -> Result<Known, String> {
        let read_at = Instant::now();
        let path = "/.well-known/openid-configuration";
        let discovery: Discovery =
            self.document(&format!("{}{path}", self.issuer.trim_end_matches('/'))).await?;
        if discovery.issuer != self.issuer {
            return Err(format!(
                "its discovery document has the issuer {:?}, which operator_api.oidc.issuer must repeat exactly",
                discovery.issuer
            ));
        }
        let endpoints = &discovery.endpoints;
        let mut urls =
            vec![&discovery.jwks_uri, &endpoints.authorization_endpoint, &endpoints.token_endpoint];
        urls.extend(&endpoints.device_authorization_endpoint);
        for url in urls {
            let link = url.parse().ok().and_then(|url| link(&url));
            if link.is_none_or(|link| link == Link::Plaintext && !self.accepts_plaintext) {
                return Err(format!("its discovery document has the URL {url:?}, which is not encrypted"));
            }
        }
        let keys = self.document(&discovery.jwks_uri).await?;
        Ok(Known { endpoints: discovery.endpoints, keys, read_at })
    }

    async fn document<T: DeserializeOwned>(&self, url: &str) -> Result<T, String> {
        let no_answer = |error: reqwest::Error| format!("{url} gave no answer: {}", error_chain(&error));
        let mut response = self.http.get(url).send().await.map_err(no_answer)?;
        if !response.status().is_success() {
            return Err(format!("{url} answered {}", response.status()));
        }
        let mut body = vec![];
        while let Some(chunk) = response.chunk().await.map_err(no_answer)? {
            body.extend_from_slice(&chunk);
            if body.len() > DOCUMENT_BYTES_MAX {
                return Err(format!("{url} answered more than {DOCUMENT_BYTES_MAX} bytes"));
            }
        }
        serde_json::from_slice(&body).map_err(|error| format!("{url} answered another document: {error}"))
    }
}

/// The link of a URL; `None` if it is no HTTP URL with a host.
fn link(url: &Url) -> Option<Link> {
    Link::of_http(url.scheme(), url.host_str()?)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::routing::get;
    use serde_json::{Value, json};

    use super::*;

    /// A provider whose discovery document is changed, and how often its keys were read.
    async fn serve(change: impl FnOnce(&str, &mut Value)) -> (OidcOptions, Arc<AtomicUsize>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let mut discovery = json!({
            "issuer": issuer, "jwks_uri": format!("{issuer}/keys"), "token_endpoint": format!("{issuer}/token"),
            "authorization_endpoint": format!("{issuer}/auth"),
        });
        change(&issuer, &mut discovery);
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reads);
        let keys = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(json!({"keys": []}).to_string())
        };
        let document = move || std::future::ready(discovery.to_string());
        let app =
            Router::new().route("/.well-known/openid-configuration", get(document)).route("/keys", get(keys));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let client_id = "payctl".to_owned();
        (OidcOptions { issuer, client_id, ca_path: None, allow_plaintext: false }, reads)
    }

    #[tokio::test]
    async fn the_provider_is_read_once_for_an_hour_and_seldom_for_an_unknown_key() {
        let (options, reads) = serve(|_, _| {}).await;
        let provider = Provider::new(options).unwrap();
        let (one, other) = tokio::join!(provider.known(), provider.known());
        assert_eq!(one.unwrap().endpoints.token_endpoint, other.unwrap().endpoints.token_endpoint);
        for _ in 0..3 {
            provider.known_after_new_key().await.unwrap();
        }
        assert_eq!(reads.load(Ordering::SeqCst), 1);
        let aged = provider.known_since(Duration::ZERO).await.unwrap();
        assert!(aged.endpoints.device_authorization_endpoint.is_none());
        assert_eq!(reads.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_provider_with_another_document_is_not_used() {
        let failure = async |change: fn(&str, &mut Value)| {
            let (options, _) = serve(change).await;
            let provider = Provider::new(options).unwrap();
            let failure = provider.known().await.unwrap_err().to_string();
            // Answered at once for some seconds.
            assert_eq!(provider.known().await.unwrap_err().to_string(), failure);
            failure
        };
        let error = failure(|issuer, document| document["issuer"] = json!(format!("{issuer}/"))).await;
        assert!(error.contains("must repeat exactly"), "{error}");
        let error = failure(|_, document| document["token_endpoint"] = json!("http://10.0.0.1/token")).await;
        assert!(error.contains("which is not encrypted"), "{error}");
        let error = failure(|issuer, document| document["jwks_uri"] = json!(format!("{issuer}/none"))).await;
        assert!(error.contains("answered 404"), "{error}");
        let error = failure(|_, document| *document = json!([])).await;
        assert!(error.contains("answered another document"), "{error}");
        let error = failure(|_, document| document["padding"] = json!("x".repeat(DOCUMENT_BYTES_MAX))).await;
        assert!(error.contains("more than 262144 bytes"), "{error}");
        let options = |issuer: &str| OidcOptions {
            issuer: issuer.into(),
            client_id: "payctl".into(),
            ca_path: None,
            allow_plaintext: false,
        };
        let silent = Provider::new(options("http://127.0.0.1:1")).unwrap();
        assert!(silent.known().await.unwrap_err().to_string().contains("gave no answer"));
        assert!(matches!(Provider::new(options("http://10.0.0.1")), Err(OidcSetupError::Plaintext(_))));
        assert!(matches!(Provider::new(options("login.example")), Err(OidcSetupError::Issuer)));
        let file = OidcOptions { ca_path: Some("/no/such/file".into()), ..options("https://login.example") };
        assert!(matches!(Provider::new(file), Err(OidcSetupError::File(_))));
    }
}
