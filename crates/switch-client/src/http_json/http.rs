//! One HTTP call to the switch and its response, before the body is interpreted.

use std::time::Instant;

use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use secrecy::ExposeSecret as _;
use serde::de::DeserializeOwned;
use trace_kit::{SpanKind, TRACEPARENT, TraceParent, attribute, span};

use super::HttpJsonClient;
use super::bodies::object;
use crate::http_json::bodies::ProblemBody;

/// Longest response body that is read, in bytes: a statement page with a kilobyte for each of its entries.
const BODY_BYTES_MAX: usize = 1_024 * crate::client::PAGE_ENTRIES_MAX;
/// Longest excerpt of a text of the switch, in characters.
const EXCERPT_CHARS_MAX: usize = 200;

/// Why no response arrived, where the request was certainly not sent.
pub(super) const NO_CONNECTION: &str = "no connection to the switch";

/// A response of the switch.
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) switch_now: Option<Timestamp>,
    body: Vec<u8>,
}

impl HttpJsonClient {
    /// Makes one call once. `operation` names it in traces. The error text says why no response arrived.
    pub(crate) async fn call(
        &self,
        operation: &'static str,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Vec<u8>>,
    ) -> Result<HttpResponse, String> {
        let mut span = span(SpanKind::Client, operation)
            .with(attribute::SWITCH, self.name.to_string())
            .with(attribute::HTTP_METHOD, method.to_string());
        if let Some(key) = key {
            span = span.with_key(&[key]);
        }
        let span = span.start();
        let result = span.run(self.exchange(method, path, key, body)).await;
        match &result {
            Ok(response) => {
                span.set(attribute::HTTP_STATUS, i64::from(response.status.as_u16()));
                if response.status.is_server_error() {
                    span.fail("the switch failed");
                }
            }
            Err(reason) => span.fail(reason.clone()),
        }
        result
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Vec<u8>>,
    ) -> Result<HttpResponse, String> {
        let mut request = self.http.request(method, format!("{}{path}", self.base_url));
        if let Some(token) = &self.api_token {
            request = request.bearer_auth(token.expose_secret());
        }
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(position) = TraceParent::current() {
            request = request.header(TRACEPARENT, position.to_string());
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body);
        }
        let mut response = request.send().await.map_err(|error| failure(&error))?;
        let switch_now = self.record_date(response.headers());
        let status = response.status();
        self.record_retry_after(status, response.headers());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
            if body.len().saturating_add(chunk.len()) > BODY_BYTES_MAX {
                return Err(format!("the response of the switch is longer than {BODY_BYTES_MAX} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(HttpResponse { status, switch_now, body })
    }

    fn record_retry_after(&self, status: StatusCode, headers: &HeaderMap) {
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            for header in headers.get_all(RETRY_AFTER).iter().filter_map(|value| value.to_str().ok()) {
                self.retry_after.record(header, Instant::now());
            }
        }
    }

    /// Of two headers one is a proxy's, and which one is unknown.
    fn record_date(&self, headers: &HeaderMap) -> Option<Timestamp> {
        let mut dates = headers.get_all(DATE).iter();
        match (dates.next(), dates.next()) {
            (Some(date), None) => date.to_str().ok().and_then(|date| self.clock.record(date)),
            _ => None,
        }
    }
}

impl HttpResponse {
    /// Parses the body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, String> {
        object(&self.body)
            .map_err(|_| format!("the response of the switch is unreadable: {}", self.excerpt()))
    }

    /// Whether the body is a problem with this code.
    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.problem().code.as_deref() == Some(code)
    }

    /// Status and problem, or the start of the body, short enough to store.
    pub(crate) fn excerpt(&self) -> String {
        let problem = self.problem();
        let text = match (problem.code, problem.detail) {
            (Some(code), Some(detail)) => format!("{code}: {detail}"),
            (Some(code), None) => code,
            (None, _) => String::from_utf8_lossy(&self.body).into_owned(),
        };
        excerpt(&format!("{} {text}", self.status.as_u16()))
    }

    fn problem(&self) -> ProblemBody {
        object(&self.body).unwrap_or_default()
    }
}

/// Whether a status says nothing about the transfer and may be temporary.
pub(crate) fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

/// The start of a text of the switch.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS_MAX).collect()
}

/// Percent-encodes an id, a cursor or an account as one path segment or query value.
pub(crate) fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn failure(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        "no answer of the switch within the attempt timeout".into()
    } else if error.is_connect() {
        NO_CONNECTION.into()
    } else {
        "the connection to the switch broke".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoded_text_in_a_switch_url_stays_in_one_path_segment() {
        assert_eq!(percent_encode("FR-BOB_1.x~"), "FR-BOB_1.x~");
        assert_eq!(percent_encode("a/b?c=d&e é"), "a%2Fb%3Fc%3Dd%26e%20%C3%A9");
    }
}
