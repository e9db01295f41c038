//! Raw calls to a switch, over the HTTP interface that the service's own client uses. Replies are returned
//! as received; `assess` draws the conclusions.

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
use crate::output::escape_control;

/// Time for one call. Longer than the service allows: a slow reply is still a measurement.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest excerpt of a reply, in characters.
const EXCERPT_CHARS_MAX: usize = 160;
/// The smallest amount, in minor units of any currency.
const AMOUNT_MINOR: i64 = 1;

/// Destination and currency of the transfers that the probe sends to test a switch.
#[derive(Clone, Debug)]
pub(crate) struct ProbeOrder {
    /// The destination account.
    pub(crate) creditor: String,
    /// ISO 4217 code.
    pub(crate) currency: String,
}

/// How a call identifies a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransferName {
    /// By our reference.
    Reference(String),
    /// By the switch's transfer id.
    TransferId(String),
}

impl TransferName {
    fn path(&self) -> String {
        match self {
            Self::Reference(reference) => format!("/v1/transfers/{reference}"),
            Self::TransferId(id) => format!("/v1/transfers/by-id/{id}"),
        }
    }
}

/// One reply of the switch.
#[derive(Clone, Debug)]
pub(crate) struct HttpReply {
    /// HTTP status.
    pub(crate) status: u16,
    /// The `Date` header, in whole seconds; `None` if missing or malformed.
    pub(crate) date: Option<Timestamp>,
    /// Our clock in the middle of the call.
    pub(crate) mid_call_at: Timestamp,
    /// Duration of the call.
    pub(crate) took: Duration,
    body: Value,
    text: String,
}

impl HttpReply {
    /// A text field of the JSON body.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.body.get(field)?.as_str()
    }

    /// A boolean field of the JSON body.
    pub(crate) fn flag(&self, field: &str) -> Option<bool> {
        self.body.get(field)?.as_bool()
    }

    /// An array field of the JSON body.
    pub(crate) fn list(&self, field: &str) -> Option<&[Value]> {
        self.body.get(field)?.as_array().map(Vec::as_slice)
    }

    /// Status and the reply's own words, on one line.
    pub(crate) fn excerpt(&self) -> String {
        let words = ["code", "answer", "status", "reason"].iter().filter_map(|field| self.text(field));
        let words = words.map(str::to_owned).collect::<Vec<_>>().join(" ");
        let words = if words.is_empty() { &self.text } else { &words };
        let words: String = words.chars().take(EXCERPT_CHARS_MAX).collect();
        escape_control(format!("{} {words}", self.status).trim_end())
    }
}

/// HTTP client of the probed switch. An `Err` of its calls is a text: the switch gave no reply.
#[derive(Debug)]
pub(crate) struct SwitchHttp {
    base: String,
    token: SecretString,
    http: reqwest::Client,
    order: ProbeOrder,
}

impl SwitchHttp {
    /// A client of the switch; sends nothing yet.
    ///
    /// # Errors
    /// The switch's section has no token, or the HTTP client cannot be built.
    pub(crate) fn new(options: &SwitchOptions, order: ProbeOrder) -> anyhow::Result<Self> {
        let http = options.http_client().context("the HTTP client of the probe cannot be built")?;
        let http = http.timeout(CALL_TIMEOUT).user_agent(concat!("payctl/", env!("CARGO_PKG_VERSION")));
        Ok(Self {
            base: options.base_url.trim_end_matches('/').to_owned(),
            token: options.api_token.clone().context(
                "the switch's section has no api_token; add the token by which the switch knows the bank",
            )?,
            http: http.build().context("the HTTP client of the probe cannot be built")?,
            order,
        })
    }

    /// Reads `/health`; any reply carries the switch's clock.
    pub(crate) async fn health(&self) -> Result<HttpReply, String> {
        self.call(Method::GET, "/health", None, None).await
    }

    /// Submits a transfer of the smallest amount.
    pub(crate) async fn submit(
        &self,
        reference: &str,
        deadline: Option<Timestamp>,
    ) -> Result<HttpReply, String> {
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

    /// Queries a transfer.
    pub(crate) async fn query(&self, name: &TransferName) -> Result<HttpReply, String> {
        self.call(Method::GET, &name.path(), None, None).await
    }

    /// Cancels a transfer. A repeated cancel uses the same `key`.
    pub(crate) async fn cancel(&self, name: &TransferName, key: &str) -> Result<HttpReply, String> {
        self.call(Method::POST, &format!("{}/cancel", name.path()), Some(key), None).await
    }

    /// Recalls a settled transfer. A repeated recall uses the same `key`.
    pub(crate) async fn recall(&self, name: &TransferName, key: &str) -> Result<HttpReply, String> {
        self.call(Method::POST, &format!("{}/recall", name.path()), Some(key), None).await
    }

    /// Lists the newest transfers to the probe's destination account, at most 100.
    pub(crate) async fn list_transfers(&self) -> Result<HttpReply, String> {
        let query = format!("creditor_account={}&last=100", self.order.creditor);
        self.call(Method::GET, &format!("/v1/transfers?{query}"), None, None).await
    }

    /// Reads the first page of the statement.
    pub(crate) async fn statement(&self) -> Result<HttpReply, String> {
        self.call(Method::GET, "/v1/statement?limit=1", None, None).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Value>,
    ) -> Result<HttpReply, String> {
        let request = self.http.request(method, format!("{}{path}", self.base));
        let mut request = request.bearer_auth(self.token.expose_secret());
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let (started, started_at) = (Instant::now(), Timestamp::now());
        let no_reply = |error: reqwest::Error| match error {
            error if error.is_timeout() => "no reply within 10 s".to_owned(),
            error if error.is_connect() => "no connection".to_owned(),
            _ => "the connection was closed before the reply".to_owned(),
        };
        let response = request.send().await.map_err(no_reply)?;
        let took = started.elapsed();
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| SwitchClock::default().record(date));
        let status = response.status().as_u16();
        let text = response.text().await.map_err(no_reply)?;
        let body = serde_json::from_str(&text).unwrap_or_default();
        let mid_call_at = started_at.saturating_add(took / 2).unwrap_or(started_at);
        Ok(HttpReply { status, date, mid_call_at, took, body, text })
    }
}

/// Whether the switch's address is a loopback address: such a switch moves no real money.
pub(crate) fn is_loopback(base_url: &str) -> bool {
    base_url.parse::<Url>().is_ok_and(|url| is_local(&url))
}
