//! Calls without the answer that was hoped for, by what may have happened.

use reqwest::StatusCode;

use super::wire::ProblemDocument;
use crate::out::plain;

/// Longest excerpt of an answer that is not a problem document, in characters.
const EXCERPT_CHARS_MAX: usize = 200;

/// A call that did not bring what was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// Nobody follows_switch: nothing was sent.
    #[error("nothing answers at {url} (--url, PAYMENTS_API_URL)")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// Sent, or partly sent, and the answer is lost or late.
    #[error("no answer from {url}")]
    NoAnswer {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// It said no.
    #[error("{status}: {message}")]
    Refused { status: StatusCode, message: String },
    /// It said yes in words that are not known here.
    #[error("the answer of {url} is not understood; is it the payments API?")]
    Unreadable {
        url: String,
        #[source]
        source: serde_json::Error,
    },
}

impl ApiError {
    pub(super) fn no_answer(url: &str, source: reqwest::Error) -> Self {
        // The message names the address already.
        let (url, source) = (url.to_owned(), source.without_url());
        match source.is_connect() {
            true => Self::Unreachable { url, source },
            false => Self::NoAnswer { url, source },
        }
    }

    /// Reads a problem document; anything else is quoted.
    pub(super) fn refused(status: StatusCode, document: &str) -> Self {
        let problem: ProblemDocument = serde_json::from_str(document).unwrap_or_default();
        let said = problem.detail.or(problem.title);
        let message = match (problem.code, said) {
            (Some(code), Some(said)) => format!("{said} ({code})"),
            (Some(said), None) | (None, Some(said)) => said,
            (None, None) => document.chars().take(EXCERPT_CHARS_MAX).collect(),
        };
        Self::Refused { status, message: plain(&message) }
    }

    /// Whether a request that changes something may have been carried out all the same.
    pub(crate) fn leaves_unknown(&self) -> bool {
        match self {
            Self::Unreachable { .. } => false,
            Self::NoAnswer { .. } | Self::Unreadable { .. } => true,
            Self::Refused { status, .. } => status.is_server_error() || *status == StatusCode::CONFLICT,
        }
    }

    /// Whether asking again may bring an answer.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoAnswer { .. } => true,
            Self::Unreadable { .. } => false,
            Self::Refused { status, .. } => {
                status.is_server_error()
                    || matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_the_api_said() {
        let refused = |document: &str| ApiError::refused(StatusCode::UNPROCESSABLE_ENTITY, document);
        let shown = [
            (
                r#"{"code":"no_route","title":"t","detail":"no switch serves X"}"#,
                "no switch serves X (no_route)",
            ),
            (r#"{"title":"Not found"}"#, "Not found"),
            ("<html>\n", "<html>\\n"),
        ];
        for (document, message) in shown {
            assert_eq!(refused(document).to_string(), format!("422 Unprocessable Entity: {message}"));
        }
    }

    #[test]
    fn a_refusal_is_known_and_a_failing_server_leaves_unknown() {
        for (status, unknown, passes) in [
            (422, false, false),
            (401, false, false),
            (409, true, false),
            (429, false, true),
            (503, true, true),
        ] {
            let error = ApiError::refused(StatusCode::from_u16(status).unwrap(), "{}");
            assert_eq!((error.leaves_unknown(), error.may_pass()), (unknown, passes), "{status}");
        }
    }
}
