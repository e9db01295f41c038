//! Failed API calls, distinguished by whether the request may have taken effect.

use reqwest::StatusCode;

use super::Service;
use super::documents::ProblemDocument;
use crate::output::escape_control;

/// Longest excerpt of a response that is not a problem document, in characters.
const EXCERPT_CHARS_MAX: usize = 200;

/// Codes of a new payment that a kill switch, or the bank's claims, refuse before anything is stored.
const SUSPENDED: [&str; 2] = ["switch_stopped", "corridor_stopped"];

/// A failed API call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// No connection: nothing was sent.
    #[error(
        "no connection to the {} at {url}, so nothing was sent; check {} and that {} runs", service.name, service.setting, service.process
    )]
    Unreachable {
        service: &'static Service,
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The request was sent at least in part; the response is lost or late.
    #[error("the {} at {url} did not respond to the request; the request may have taken effect", service.name)]
    NoResponse {
        service: &'static Service,
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The API answered with an error status.
    #[error("the {} refused the request with {status}: {message}", service.name)]
    Refused {
        service: &'static Service,
        status: StatusCode,
        message: String,
        /// The problem says that nothing was done, in spite of a status that leaves it open.
        is_without_effect: bool,
    },
    /// The API answered with success and a body that cannot be parsed.
    #[error("the response of {url} is not a document of the {}; check {}", service.name, service.setting)]
    Unreadable {
        service: &'static Service,
        url: String,
        #[source]
        source: serde_json::Error,
    },
}

impl ApiError {
    pub(super) fn no_response(service: &'static Service, url: &str, source: reqwest::Error) -> Self {
        // The message names the address already.
        let (url, source) = (url.to_owned(), source.without_url());
        match source.is_connect() {
            true => Self::Unreachable { service, url, source },
            false => Self::NoResponse { service, url, source },
        }
    }

    /// Reads a problem document; any other body is quoted.
    pub(super) fn refused(service: &'static Service, status: StatusCode, body: &str) -> Self {
        let problem: ProblemDocument = serde_json::from_str(body).unwrap_or_default();
        let text = problem.detail.or(problem.title);
        let is_without_effect = problem.code.as_deref().is_some_and(|code| SUSPENDED.contains(&code));
        let message = match (problem.code, text) {
            (Some(code), Some(text)) => format!("{text} ({code})"),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => body.chars().take(EXCERPT_CHARS_MAX).collect(),
        };
        Self::Refused { service, status, message: escape_control(&message), is_without_effect }
    }

    /// Whether a request that changes state may have taken effect nevertheless.
    pub(crate) fn may_have_taken_effect(&self) -> bool {
        match self {
            Self::Unreachable { .. } => false,
            Self::NoResponse { .. } | Self::Unreadable { .. } => true,
            Self::Refused { status, is_without_effect, .. } => {
                !is_without_effect && (status.is_server_error() || *status == StatusCode::CONFLICT)
            }
        }
    }

    /// Whether a retry may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoResponse { .. } => true,
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

    const SERVICE: Service = Service { name: "payments API", setting: "s", process: "p" };

    #[test]
    fn payctl_shows_the_problem_text_of_a_request_that_the_api_refused() {
        let refused = |body: &str| ApiError::refused(&SERVICE, StatusCode::UNPROCESSABLE_ENTITY, body);
        let shown = [
            (
                r#"{"code":"no_route","title":"t","detail":"no switch serves X"}"#,
                "no switch serves X (no_route)",
            ),
            (r#"{"title":"Not found"}"#, "Not found"),
            ("<html>\n", "<html>\\n"),
        ];
        for (body, message) in shown {
            assert_eq!(
                refused(body).to_string(),
                format!("the payments API refused the request with 422 Unprocessable Entity: {message}")
            );
        }
    }

    #[test]
    fn payctl_api_errors_state_whether_the_request_may_have_taken_effect() {
        for (status, may_have_taken_effect, transient) in [
            (422, false, false),
            (401, false, false),
            (409, true, false),
            (429, false, true),
            (503, true, true),
        ] {
            let error = ApiError::refused(&SERVICE, StatusCode::from_u16(status).unwrap(), "{}");
            assert_eq!(
                (error.may_have_taken_effect(), error.is_transient()),
                (may_have_taken_effect, transient),
                "{status}"
            );
        }
        for code in SUSPENDED {
            let body = format!(r#"{{"code":"{code}"}}"#);
            let stopped = ApiError::refused(&SERVICE, StatusCode::SERVICE_UNAVAILABLE, &body);
            assert!(!stopped.may_have_taken_effect() && stopped.is_transient(), "{code}");
        }
    }
}
