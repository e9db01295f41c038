//! One call over HTTP: what came back, before it is understood.

use std::time::Instant;

use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use secrecy::ExposeSecret as _;
use serde::de::DeserializeOwned;

use crate::SwitchClient;
use crate::wire::ProblemBody;

/// Longest answer that is read, in bytes: a page of the statement, with a kilobyte for each of its lines.
const ANSWER_BYTES_MAX: usize = 1_024 * crate::statement::WHOLE_PAGE;
/// Longest excerpt of a foreign text that is kept, in characters.
const EXCERPT_CHARS_MAX: usize = 200;

/// What came back.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) switch_now: Option<Timestamp>,
    body: Vec<u8>,
}

impl SwitchClient {
    /// One attempt of one call. An error is a text for people: there was no answer.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Vec<u8>>,
    ) -> Result<Reply, String> {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base_url))
            .bearer_auth(self.api_token.expose_secret());
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body);
        }
        let mut response = request.send().await.map_err(|error| no_answer(&error))?;
        let switch_now = self.hear(response.headers());
        let status = response.status();
        self.hear_wish(status, response.headers());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| no_answer(&error))? {
            if body.len().saturating_add(chunk.len()) > ANSWER_BYTES_MAX {
                return Err(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply { status, switch_now, body })
    }

    /// Hears how long the switch wants to be left alone, where it says that it is busy.
    fn hear_wish(&self, status: StatusCode, headers: &HeaderMap) {
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
            && let Some(wish) = headers.get(RETRY_AFTER).and_then(|wish| wish.to_str().ok())
        {
            self.quiet.hear(wish, Instant::now());
        }
    }

    fn hear(&self, headers: &HeaderMap) -> Option<Timestamp> {
        headers.get(DATE).and_then(|date| date.to_str().ok()).and_then(|date| self.clock.hear(date))
    }
}

impl Reply {
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_slice(&self.body)
            .map_err(|_| format!("an answer that cannot be read: {}", self.excerpt()))
    }

    /// Whether it says that there is no such transfer, rather than no such path.
    pub(crate) fn says_unknown(&self) -> bool {
        matches!(self.problem().code.as_deref(), Some("unknown_reference" | "transfer_without_payment"))
    }

    /// What it said, short enough to store.
    pub(crate) fn excerpt(&self) -> String {
        let problem = self.problem();
        let said = match (problem.code, problem.detail) {
            (Some(code), Some(detail)) => format!("{code}: {detail}"),
            (Some(code), None) => code,
            (None, _) => String::from_utf8_lossy(&self.body).into_owned(),
        };
        excerpt(&format!("{} {said}", self.status.as_u16()))
    }

    fn problem(&self) -> ProblemBody {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Answers that say nothing of the transfer and may pass by themselves.
pub(crate) fn may_pass(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

/// The start of a foreign text.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS_MAX).collect()
}

/// A foreign text (an id, a cursor, an account) as one part of a path or of a query.
pub(crate) fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn no_answer(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        "no answer within the attempt's timeout".into()
    } else if error.is_connect() {
        "no connection".into()
    } else {
        "the connection broke".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_text_stays_one_part() {
        assert_eq!(escaped("FR-BOB_1.x~"), "FR-BOB_1.x~");
        assert_eq!(escaped("a/b?c=d&e é"), "a%2Fb%3Fc%3Dd%26e%20%C3%A9");
    }
}
