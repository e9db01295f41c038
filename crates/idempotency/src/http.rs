//! The HTTP side, for any axum service: requires and parses the header before a handler runs, and writes outcomes as
//! responses.
//!
//! ```text
//!  request -> IdempotencyLayer: caller, key -> IdempotencyContext -> handler: Batcher, claim or token_claim -> response
//! ```
//!
//! The layer does not read the body: only the handler knows which bodies are the same request
//! ([`IdempotencyContext::fingerprint`]; [`crate::canonical::json`] is the general form).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tower::{Layer, Service};

use crate::batch::RequestOutcome;
use crate::stored_response::StoredResponse;
use crate::{Fingerprint, IdempotencyError, IdempotencyKey, KeyError, KeyScope};

/// The request header with the idempotency key (S3.1).
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The response header that says whether the response is a replay.
pub const IDEMPOTENT_REPLAY: HeaderName = HeaderName::from_static("idempotent-replay");
/// Pause after which the first request has probably ended, or the store is probed again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The owner of a request's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    /// The tenant.
    pub tenant: String,
    /// The client within the tenant; unchanged by a rotation of its credentials.
    pub client: String,
}

/// Authenticates the caller, before the key is read, so that an unknown caller learns nothing about keys.
pub trait Identify: Clone + Send + Sync + 'static {
    /// The caller as key owner, or the response to an unknown caller. The implementation may add extensions to the request.
    fn identify(&self, parts: &mut Parts) -> impl Future<Output = Result<KeyOwner, Response>> + Send;
}

/// Requires a key for every unsafe method and adds an [`IdempotencyContext`] for the handler. GET, HEAD, OPTIONS and TRACE
/// pass unchanged.
#[derive(Clone, Debug)]
pub struct IdempotencyLayer<I> {
    identify: I,
    refusal_response: fn(RequestRefusal) -> Response,
}

impl<I: Identify> IdempotencyLayer<I> {
    /// A layer that refuses requests with problem+json.
    pub fn new(identify: I) -> Self {
        Self { identify, refusal_response: RequestRefusal::into_response }
    }

    /// Uses the refusal response of the service.
    #[must_use]
    pub fn with_refusal_response(mut self, refusal_response: fn(RequestRefusal) -> Response) -> Self {
        self.refusal_response = refusal_response;
        self
    }
}

impl<I: Clone, S> Layer<S> for IdempotencyLayer<I> {
    type Service = IdempotencyService<I, S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService { layer: self.clone(), inner }
    }
}

/// The service of an [`IdempotencyLayer`].
#[derive(Clone, Debug)]
pub struct IdempotencyService<I, S> {
    layer: IdempotencyLayer<I>,
    inner: S,
}

impl<I, S> Service<Request> for IdempotencyService<I, S>
where
    I: Identify,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // Only the polled service is ready, so it handles the request and the clone takes its place.
        let inner = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, inner);
        let layer = self.layer.clone();
        Box::pin(async move {
            if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE) {
                return inner.call(request).await;
            }
            match layer.add_context(request).await {
                Ok(request) => inner.call(request).await,
                Err(response) => Ok(response),
            }
        })
    }
}

impl<I: Identify> IdempotencyLayer<I> {
    async fn add_context(&self, request: Request<Body>) -> Result<Request<Body>, Response> {
        let (mut parts, body) = request.into_parts();
        let owner = self.identify.identify(&mut parts).await?;
        let key = key(&parts).map_err(self.refusal_response)?;
        tracing::Span::current().record("idempotency.key", key.as_str());
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        parts.extensions.insert(IdempotencyContext { owner, key, method, path });
        Ok(Request::from_parts(parts, body))
    }
}

fn key(parts: &Parts) -> Result<IdempotencyKey, RequestRefusal> {
    let mut values = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
    let value = values.next().ok_or(RequestRefusal::KeyMissing)?;
    if values.next().is_some() {
        return Err(RequestRefusal::KeyRepeated);
    }
    IdempotencyKey::parse(value.as_bytes()).map_err(RequestRefusal::KeyMalformed)
}

/// Key, owner, method and path of a request: an axum extractor for routes under an [`IdempotencyLayer`].
#[derive(Clone, Debug)]
pub struct IdempotencyContext {
    owner: KeyOwner,
    key: IdempotencyKey,
    method: Method,
    path: String,
}

impl IdempotencyContext {
    /// The key with its owner.
    #[must_use]
    pub fn scope(&self) -> KeyScope<'_> {
        KeyScope { tenant: &self.owner.tenant, client: &self.owner.client, key: &self.key }
    }

    /// The key, to be passed on to services called for this request (S3.9).
    #[must_use]
    pub fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// The fingerprint of this request with the canonical form of its body.
    #[must_use]
    pub fn fingerprint(&self, canonical: &[u8]) -> Fingerprint {
        Fingerprint::of(&self.owner.tenant, self.method.as_str(), &self.path, canonical)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyContext {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            tracing::error!("the handler of an HTTP route extracts IdempotencyContext, but the route has no IdempotencyLayer; the request is answered with 500");
            StatusCode::INTERNAL_SERVER_ERROR
        })
    }
}

/// Why a request was not executed, or not now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    /// The request has no key.
    #[error(
        "the request has no Idempotency-Key header; send one, with the same key in every retry of the request"
    )]
    KeyMissing,
    /// The request has several keys.
    #[error("the request has more than one Idempotency-Key header; send exactly one")]
    KeyRepeated,
    /// The header is not a key.
    #[error(transparent)]
    KeyMalformed(KeyError),
    /// The first request with the key is in progress.
    #[error(
        "the first request with this Idempotency-Key is still in progress; retry the request later with the same key"
    )]
    InProgress,
    /// The key was used for a different request.
    #[error("this Idempotency-Key was used for a different request; send a new request with a new key")]
    Mismatch,
    /// The store did not answer, its circuit is open, or its queue is full.
    #[error(
        "the service cannot store the outcome of the request at the moment; retry the request with the same Idempotency-Key, which is safe"
    )]
    StoreUnavailable,
    /// A defect of the service.
    #[error(
        "the request failed with an internal error of the service; retrying the request with the same Idempotency-Key is safe"
    )]
    Defect,
}

impl RequestRefusal {
    /// HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::KeyMissing | Self::KeyRepeated | Self::KeyMalformed(_) => StatusCode::BAD_REQUEST,
            Self::InProgress => StatusCode::CONFLICT,
            Self::Mismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Defect => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Stable code of the refusal, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::KeyMissing => "idempotency_key_missing",
            Self::KeyRepeated | Self::KeyMalformed(_) => "idempotency_key_malformed",
            Self::InProgress => "transaction_in_progress",
            Self::Mismatch => "payload_mismatch",
            Self::StoreUnavailable => "store_unavailable",
            Self::Defect => "internal",
        }
    }

    /// How long to wait before a retry; `None` if a retry does not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        matches!(self, Self::InProgress | Self::StoreUnavailable).then_some(RETRY_AFTER)
    }
}

impl From<&IdempotencyError> for RequestRefusal {
    fn from(error: &IdempotencyError) -> Self {
        match error {
            IdempotencyError::QueueFull
            | IdempotencyError::OutcomeUnknown
            | IdempotencyError::PartitionMissing
            | IdempotencyError::UnsupportedSchemaVersion { .. } => Self::StoreUnavailable,
            error if error.is_store_unavailable() => Self::StoreUnavailable,
            // A retry gets the response of the request that took the key over.
            IdempotencyError::ClaimLost => Self::InProgress,
            _ => Self::Defect,
        }
    }
}

impl IntoResponse for RequestRefusal {
    fn into_response(self) -> Response {
        let problem = serde_json::json!({
            "type": "about:blank", "status": self.status().as_u16(), "code": self.code(), "detail": self.to_string(),
        });
        let mut response = (self.status(), problem.to_string()).into_response();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if let Some(wait) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
        }
        response
    }
}

/// The response to an outcome: the first response as it is; a replay byte for byte and marked, with 200 in place of 201.
///
/// # Errors
/// [`ResponseError`] if the request was not executed; the service writes the response.
pub fn response<R>(outcome: RequestOutcome<R>) -> Result<Response, ResponseError<R>> {
    match outcome {
        RequestOutcome::Executed(stored) => Ok(json_response(stored, false)),
        RequestOutcome::Replayed(stored) => Ok(json_response(stored, true)),
        RequestOutcome::InProgress => Err(ResponseError::Key(RequestRefusal::InProgress)),
        RequestOutcome::Mismatch => Err(ResponseError::Key(RequestRefusal::Mismatch)),
        RequestOutcome::Refused(refusal) => Err(ResponseError::BatchEffect(refusal)),
    }
}

/// The request was not executed.
#[derive(Debug)]
pub enum ResponseError<R> {
    /// The request was refused because of its key.
    Key(RequestRefusal),
    /// The effect refused the request; the key is unused.
    BatchEffect(R),
}

/// A JSON response with the header `Idempotent-Replay`.
#[must_use]
pub fn json_response(stored: StoredResponse, is_replay: bool) -> Response {
    let status = match StatusCode::from_u16(stored.status) {
        Ok(StatusCode::CREATED) if is_replay => StatusCode::OK,
        Ok(status) => status,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let replay = HeaderValue::from_static(if is_replay { "true" } else { "false" });
    let json = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, json), (IDEMPOTENT_REPLAY, replay)], stored.body).into_response()
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[derive(Clone)]
    struct NobodyIsKnown;

    impl Identify for NobodyIsKnown {
        async fn identify(&self, _: &mut Parts) -> Result<KeyOwner, Response> {
            Err(StatusCode::UNAUTHORIZED.into_response())
        }
    }

    #[derive(Clone)]
    struct NeverReady;

    impl Service<Request> for NeverReady {
        type Response = Response;
        type Error = Infallible;
        type Future = std::future::Pending<Result<Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Pending
        }

        fn call(&mut self, _: Request) -> Self::Future {
            std::future::pending()
        }
    }

    #[test]
    fn a_service_with_keys_is_ready_when_the_inner_one_is() {
        let mut service = IdempotencyLayer::new(NobodyIsKnown).layer(NeverReady);
        assert!(service.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn each_error_of_the_store_has_its_refusal() {
        let refused = |error: IdempotencyError| RequestRefusal::from(&error).code();
        for error in [
            IdempotencyError::QueueFull,
            IdempotencyError::OutcomeUnknown,
            IdempotencyError::PartitionMissing,
            IdempotencyError::Unavailable,
            IdempotencyError::LeaseExceeded,
            IdempotencyError::Database(sqlx::Error::PoolTimedOut),
        ] {
            assert_eq!(refused(error), "store_unavailable");
        }
        assert_eq!(refused(IdempotencyError::ClaimLost), "transaction_in_progress");
        for error in [
            IdempotencyError::Database(sqlx::Error::RowNotFound),
            IdempotencyError::NotStorable { status: 503 },
            IdempotencyError::OutcomeCount { requests: 2, outcomes: 1 },
        ] {
            assert_eq!(refused(error), "internal");
        }
    }
}
