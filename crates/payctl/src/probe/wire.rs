//! Raw calls to a switch, over the same HTTP interface that the bank's client uses. An answer is taken
//! as it is said; what it means for the profile is judged elsewhere.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use reqwest::header::DATE;
use reqwest::{Method, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use switch_client::clock::SwitchClock;
use switch_client::config::SwitchOptions;

use crate::api::is_local;
use crate::out::plain;

/// Time for one call. Longer than the bank gives one: an answer that comes at all is to be heard.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest excerpt of an answer, in characters.
const EXCERPT_CHARS_MAX: usize = 160;
/// The smallest amount there is, in minor units of any currency.
const AMOUNT_MINOR: i64 = 1;

/// What probe transfers look like.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// The account at the destination bank.
    pub(crate) creditor: String,
    /// ISO 4217 code.
    pub(crate) currency: String,
}

/// How a transfer is named in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// By our reference.
    Reference(String),
    /// By the switch's own id.
    Id(String),
}

impl Name {
    fn path(&self) -> String {
        match self {
            Self::Reference(reference) => format!("/v1/transfers/{reference}"),
            Self::Id(id) => format!("/v1/transfers/by-id/{id}"),
        }
    }
}

/// One answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// HTTP status.
    pub(crate) status: u16,
    /// Its `Date`, with whole seconds.
    pub(crate) date: Option<Timestamp>,
    /// Our clock in the middle of the call.
    pub(crate) heard_at: Timestamp,
    /// How long the call took.
    pub(crate) took: Duration,
    body: Value,
    text: String,
}

impl Reply {
    /// A field's text.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.body.get(field)?.as_str()
    }

    /// A field's truth.
    pub(crate) fn flag(&self, field: &str) -> Option<bool> {
        self.body.get(field)?.as_bool()
    }

    /// A field's list.
    pub(crate) fn list(&self, field: &str) -> Option<&[Value]> {
        self.body.get(field)?.as_array().map(Vec::as_slice)
    }

    /// Status and what was said, on one line.
    pub(crate) fn excerpt(&self) -> String {
        let words = ["code", "answer", "status", "reason"].iter().filter_map(|field| self.text(field));
        let said = words.map(str::to_owned).collect::<Vec<_>>().join(" ");
        let said = if said.is_empty() { &self.text } else { &said };
        let said: String = said.chars().take(EXCERPT_CHARS_MAX).collect();
        plain(format!("{} {said}", self.status).trim_end())
    }
}

/// A switch to be probed.
#[derive(Debug)]
pub(crate) struct Wire {
    base: String,
    token: SecretString,
    http: reqwest::Client,
    order: Order,
}

impl Wire {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// When the address is no URL, or the HTTP client cannot be made.
    pub(crate) fn new(options: &SwitchOptions, order: Order) -> anyhow::Result<Self> {
        // Refused when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("payctl/", env!("CARGO_PKG_VERSION")));
        if !options.base_url.starts_with("https:") {
            http = http.tls_certs_only([]).no_proxy();
        }
        Ok(Self {
            base: options.base_url.trim_end_matches('/').to_owned(),
            token: options.api_token.clone(),
            http: http.build().context("the HTTP client could not be made")?,
            order,
        })
    }

    /// Any answer, for its clock.
    pub(crate) async fn health(&self) -> Result<Reply, String> {
        self.call(Method::GET, "/health", None, None).await
    }

    /// Sends a transfer of the smallest amount.
    pub(crate) async fn submit(&self, reference: &str, deadline: Option<Timestamp>) -> Result<Reply, String> {
        let mut body = json!({
            "reference": reference,
            "amount_minor": AMOUNT_MINOR,
            "currency": self.order.currency,
            "creditor_account": self.order.creditor,
        });
        if let Some(deadline) = deadline {
            body["deadline"] = deadline.to_string().into();
        }
        self.call(Method::POST, "/v1/transfers", Some(reference), Some(body)).await
    }

    /// Asks for a transfer.
    pub(crate) async fn query(&self, name: &Name) -> Result<Reply, String> {
        self.call(Method::GET, &name.path(), None, None).await
    }

    /// Asks to cancel. `key` stays the same when the same cancel is asked again.
    pub(crate) async fn cancel(&self, name: &Name, key: &str) -> Result<Reply, String> {
        self.call(Method::POST, &format!("{}/cancel", name.path()), Some(key), None).await
    }

    /// Asks for money back.
    pub(crate) async fn recall(&self, name: &Name, key: &str) -> Result<Reply, String> {
        self.call(Method::POST, &format!("{}/recall", name.path()), Some(key), None).await
    }

    /// The newest transfers to the probe's account, at most 100.
    pub(crate) async fn listing(&self) -> Result<Reply, String> {
        let query = format!("creditor_account={}&last=100", self.order.creditor);
        self.call(Method::GET, &format!("/v1/transfers?{query}"), None, None).await
    }

    /// The first page of the statement.
    pub(crate) async fn statement(&self) -> Result<Reply, String> {
        self.call(Method::GET, "/v1/statement?limit=1", None, None).await
    }

    /// An error is a text for people: there was no answer.
    async fn call(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Value>,
    ) -> Result<Reply, String> {
        let request = self.http.request(method, format!("{}{path}", self.base));
        let mut request = request.bearer_auth(self.token.expose_secret());
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let (asked, asked_at) = (Instant::now(), Timestamp::now());
        let no_answer = |error: reqwest::Error| match error {
            error if error.is_timeout() => "no answer within 10 s".to_owned(),
            error if error.is_connect() => "no connection".to_owned(),
            _ => "the connection broke".to_owned(),
        };
        let response = request.send().await.map_err(no_answer)?;
        let took = asked.elapsed();
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| SwitchClock::default().record(date));
        let status = response.status().as_u16();
        let text = response.text().await.map_err(no_answer)?;
        let body = serde_json::from_str(&text).unwrap_or_default();
        let heard_at = asked_at.saturating_add(took / 2).unwrap_or(asked_at);
        Ok(Reply { status, date, heard_at, took, body, text })
    }
}

/// Whether a switch at this address is on this machine, where no money is.
pub(crate) fn is_loopback(base_url: &str) -> bool {
    base_url.parse::<Url>().is_ok_and(|url| is_local(&url))
}
