//! Errors as a client receives them: RFC 9457 problem documents with a stable `code`.
//!
//! The code is for programs, the title names the kind of problem, the detail describes this occurrence. Each service
//! defines its own codes; this module has those of every HTTP service.

mod extract;

use std::borrow::Cow;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

pub use extract::{Json, Path, Query};

/// One problem document, and the response that carries it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{status} {code}: {}", detail.as_deref().unwrap_or(title))]
pub struct Problem {
    /// The HTTP status, repeated in the document.
    pub status: StatusCode,
    /// Stable snake_case name, for programs. An empty one makes the type `about:blank`.
    pub code: Cow<'static, str>,
    /// The kind of problem, the same for every occurrence.
    pub title: Cow<'static, str>,
    /// This occurrence: what happened, to which object, what to do.
    pub detail: Option<Cow<'static, str>>,
    /// Sent as `Retry-After`, in whole seconds rounded up.
    pub retry_after: Option<Duration>,
    /// Sent as `WWW-Authenticate`; `Bearer` on a 401 if `None`.
    pub challenge: Option<&'static str>,
}

/// The document as it is sent.
#[derive(Serialize)]
struct Document<'a> {
    r#type: Cow<'static, str>,
    title: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    code: &'a str,
}

impl Problem {
    /// A problem without detail.
    pub fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        title: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            code: code.into(),
            title: title.into(),
            detail: None,
            retry_after: None,
            challenge: None,
        }
    }

    /// Sets the detail of this occurrence.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Sets `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Sets `WWW-Authenticate`.
    #[must_use]
    pub fn challenge(mut self, challenge: &'static str) -> Self {
        self.challenge = Some(challenge);
        self
    }

    /// A problem with status 400 and the given code.
    pub fn bad_request(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, "The request is malformed").detail(detail)
    }

    /// A problem with status 401 and code `unauthorized`, with the `WWW-Authenticate: Bearer` a 401 must carry.
    pub fn unauthorized(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "Not authorised").detail(detail)
    }

    /// A problem with status 404 and the given code.
    pub fn missing(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, "Not found").detail(detail)
    }

    /// A problem with status 409 and the given code.
    pub fn conflict(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, code, "The request conflicts with an earlier one").detail(detail)
    }

    /// A problem with status 422 and the given code: the request is well formed and refused.
    pub fn unprocessable(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, "The request cannot be accepted").detail(detail)
    }

    /// A problem with status 503 and code `unavailable`: a later retry may succeed.
    pub fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Temporarily unavailable")
            .detail(detail)
            .retry_after(Duration::from_secs(1))
    }

    /// A problem with status 500 and code `internal`. The cause is logged, not sent.
    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal server error")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let kind = match self.code.as_ref() {
            "" => Cow::Borrowed("about:blank"),
            code => Cow::Owned(format!("urn:problem:{code}")),
        };
        let document = Document {
            r#type: kind,
            title: &self.title,
            status: self.status.as_u16(),
            detail: self.detail.as_deref(),
            code: &self.code,
        };
        let mut response = (self.status, axum::Json(document)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        let unauthorized = (self.status == StatusCode::UNAUTHORIZED).then_some("Bearer");
        if let Some(challenge) = self.challenge.or(unauthorized) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

/// Response to a path without a route: 404 `not_found`.
pub async fn not_found() -> Problem {
    Problem::missing("not_found", "no resource exists at this path; check the spelling of the path")
}

/// Response to a method that the route does not have: 405 `method_not_allowed`.
pub async fn method_not_allowed() -> Problem {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    Problem::new(status, "method_not_allowed", "Method not allowed")
}

/// Adds both fallbacks to a router; call it after its routes are added.
pub fn with_fallbacks<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router.fallback(not_found).method_not_allowed_fallback(method_not_allowed)
}

#[cfg(test)]
mod tests;
