//! Errors a caller sees: RFC 9457 problem documents with a stable `code`.
//!
//! The code is for programs, the title says what kind of thing went wrong, the
//! detail says what was wrong this time. Which codes exist is decided by each
//! service; here are only those that any HTTP service has.

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
    /// What kind of problem, the same for every occurrence.
    pub title: Cow<'static, str>,
    /// What happened this time.
    pub detail: Option<Cow<'static, str>>,
    /// Sent as `Retry-After`, in whole seconds rounded up.
    pub retry_after: Option<Duration>,
    /// Sent as `WWW-Authenticate`; a 401 without one says `Bearer`.
    pub challenge: Option<&'static str>,
}

/// The document as it goes over the wire.
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

    /// Says what happened this time.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Says when to come again.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Says how to authenticate, and what was wrong with it.
    #[must_use]
    pub fn challenge(mut self, challenge: &'static str) -> Self {
        self.challenge = Some(challenge);
        self
    }

    /// 400 with the given code.
    pub fn bad_request(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, "The request is malformed").detail(detail)
    }

    /// 401 `unauthorized`, with the `WWW-Authenticate: Bearer` a 401 must carry.
    pub fn unauthorized(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "Not authorised").detail(detail)
    }

    /// 404 with the given code.
    pub fn missing(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, "Not found").detail(detail)
    }

    /// 409 with the given code.
    pub fn conflict(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, code, "The request conflicts with an earlier one").detail(detail)
    }

    /// 422 with the given code: well formed, but not acceptable.
    pub fn unprocessable(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, "The request cannot be accepted").detail(detail)
    }

    /// 503 `unavailable`: a repeat later may succeed.
    pub fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Temporarily unavailable")
            .detail(detail)
            .retry_after(Duration::from_secs(1))
    }

    /// 500 `internal`. It says nothing of the cause: that belongs in the log.
    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Something went wrong here")
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

/// Answers a path that no route has: 404 `not_found`.
pub async fn not_found() -> Problem {
    Problem::missing("not_found", "there is nothing at this path")
}

/// Answers a method that the route does not have: 405 `method_not_allowed`.
pub async fn method_not_allowed() -> Problem {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    Problem::new(status, "method_not_allowed", "Method not allowed")
}

/// Puts both fallbacks on a router; call it after its routes are added.
pub fn with_fallbacks<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router.fallback(not_found).method_not_allowed_fallback(method_not_allowed)
}

#[cfg(test)]
mod tests;
