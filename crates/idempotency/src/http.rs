//! The HTTP side, for any axum service: the header read and required before a handler runs, and results written as the
//! contract has them.
//!
//! ```text
//!  request -> IdempotencyLayer: who calls? which key? -> Ticket -> handler: Batcher, claim or outside -> Outcome -> answer
//! ```
//!
//! The layer does not read the body: only the handler knows which two bodies are the same request ([`Ticket::fingerprint`];
//! [`crate::canonical::json`] for those that have nothing better).

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

use crate::answer::Answer;
use crate::batch::Outcome;
use crate::{Fingerprint, IdempotencyError, IdempotencyKey, KeyError, Scope};

/// The header that names a request (S3.1).
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says whether an answer is the first one or a copy of it.
pub const IDEMPOTENT_REPLAY: HeaderName = HeaderName::from_static("idempotent-replay");
/// After so long a repeat may find the first request ended, or the store back.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Whose keys a request uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The tenant.
    pub tenant: String,
    /// The client within it; the same through rotation of its credentials.
    pub client: String,
}

/// Finds out who calls. It comes before the key, so that who is not known learns nothing.
pub trait Identify: Clone + Send + Sync + 'static {
    /// The caller, or the answer to somebody who is none. What is learnt may be left in the extensions.
    fn identify(&self, parts: &mut Parts) -> impl Future<Output = Result<Owner, Response>> + Send;
}

/// Requires a key of every request that changes something, and leaves a [`Ticket`] with the handler. GET, HEAD,
/// OPTIONS and TRACE pass as they are.
#[derive(Clone, Debug)]
pub struct IdempotencyLayer<I> {
    identify: I,
    refuse: fn(Refusal) -> Response,
}

impl<I: Identify> IdempotencyLayer<I> {
    /// A layer whose refusals are problem+json.
    pub fn new(identify: I) -> Self {
        Self { identify, refuse: Refusal::into_response }
    }

    /// With refusals in the service's own form.
    #[must_use]
    pub fn refusing_by(mut self, refuse: fn(Refusal) -> Response) -> Self {
        self.refuse = refuse;
        self
    }
}

impl<I: Clone, S> Layer<S> for IdempotencyLayer<I> {
    type Service = Idempotent<I, S>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotent { layer: self.clone(), inner }
    }
}

/// The service of an [`IdempotencyLayer`].
#[derive(Clone, Debug)]
pub struct Idempotent<I, S> {
    layer: IdempotencyLayer<I>,
    inner: S,
}

impl<I, S> Service<Request> for Idempotent<I, S>
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
        // The clone is not ready; the one that is goes with the request.
        let inner = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, inner);
        let layer = self.layer.clone();
        Box::pin(async move {
            if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE) {
                return inner.call(request).await;
            }
            match layer.ticket(request).await {
                Ok(request) => inner.call(request).await,
                Err(response) => Ok(response),
            }
        })
    }
}

impl<I: Identify> IdempotencyLayer<I> {
    async fn ticket(&self, request: Request<Body>) -> Result<Request<Body>, Response> {
        let (mut parts, body) = request.into_parts();
        let owner = self.identify.identify(&mut parts).await?;
        let key = key(&parts).map_err(self.refuse)?;
        tracing::Span::current().record("idempotency.key", key.as_str());
        let ticket = Ticket { owner, key, method: parts.method.clone(), path: parts.uri.path().to_owned() };
        parts.extensions.insert(ticket);
        Ok(Request::from_parts(parts, body))
    }
}

fn key(parts: &Parts) -> Result<IdempotencyKey, Refusal> {
    let mut values = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
    let value = values.next().ok_or(Refusal::KeyMissing)?;
    if values.next().is_some() {
        return Err(Refusal::KeyRepeated);
    }
    IdempotencyKey::parse(value.as_bytes()).map_err(Refusal::KeyMalformed)
}

/// A request that has a key: whose it is, and what it asks for as far as the head of the request says.
#[derive(Clone, Debug)]
pub struct Ticket {
    owner: Owner,
    key: IdempotencyKey,
    method: Method,
    path: String,
}

impl Ticket {
    /// Whose key it is.
    #[must_use]
    pub fn scope(&self) -> Scope<'_> {
        Scope { tenant: &self.owner.tenant, client: &self.owner.client, key: &self.key }
    }

    /// The key, to be handed on to whoever is called for this request (S3.9).
    #[must_use]
    pub fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// The fingerprint of this request with a body of this canonical form.
    #[must_use]
    pub fn fingerprint(&self, canonical: &[u8]) -> Fingerprint {
        Fingerprint::of(&self.owner.tenant, self.method.as_str(), &self.path, canonical)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Ticket {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            tracing::error!("a route takes a ticket and has no IdempotencyLayer");
            StatusCode::INTERNAL_SERVER_ERROR
        })
    }
}

/// Why a request was not carried out, or not now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No key.
    #[error("send an Idempotency-Key, the same one on every repeat of this request")]
    KeyMissing,
    /// Two keys.
    #[error("there is more than one Idempotency-Key")]
    KeyRepeated,
    /// Not a key.
    #[error(transparent)]
    KeyMalformed(KeyError),
    /// The first request is under way.
    #[error("the first request with this Idempotency-Key is still being carried out")]
    InProgress,
    /// The key was used.
    #[error("this Idempotency-Key was used for another request; a new request needs a new key")]
    Mismatch,
    /// The store did not answer, or nobody asked it.
    #[error("repeat the request with the same Idempotency-Key")]
    StoreUnavailable,
    /// A defect.
    #[error("the request met a defect; it is safe to repeat it with the same Idempotency-Key")]
    Defect,
}

impl Refusal {
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

    /// Stable word for programs.
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

    /// How long to wait before a repeat, where waiting helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        matches!(self, Self::InProgress | Self::StoreUnavailable).then_some(RETRY_AFTER)
    }
}

impl From<&IdempotencyError> for Refusal {
    fn from(error: &IdempotencyError) -> Self {
        match error {
            IdempotencyError::Busy
            | IdempotencyError::Stopped
            | IdempotencyError::DayMissing
            | IdempotencyError::LaterVersion { .. } => Self::StoreUnavailable,
            lost if lost.is_store_lost() => Self::StoreUnavailable,
            // Another was quicker: its answer is there for the repeat.
            IdempotencyError::Overtaken => Self::InProgress,
            _ => Self::Defect,
        }
    }
}

impl IntoResponse for Refusal {
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

/// The answer to an outcome: the first one as it is, its copies byte for byte and marked, 200 in place of 201.
///
/// # Errors
/// What is no answer, for the service to write: [`Unanswered`].
pub fn answer<R>(outcome: Outcome<R>) -> Result<Response, Unanswered<R>> {
    match outcome {
        Outcome::Answered(first) => Ok(write(first, false)),
        Outcome::Replayed(copy) => Ok(write(copy, true)),
        Outcome::InProgress => Err(Unanswered::Refused(Refusal::InProgress)),
        Outcome::Mismatch => Err(Unanswered::Refused(Refusal::Mismatch)),
        Outcome::Refused(refusal) => Err(Unanswered::NotCarriedOut(refusal)),
    }
}

/// An outcome that is no answer.
#[derive(Debug)]
pub enum Unanswered<R> {
    /// The key says no.
    Refused(Refusal),
    /// The effect says no; the key is unused.
    NotCarriedOut(R),
}

/// A JSON answer that says whether it is a copy.
#[must_use]
pub fn write(answer: Answer, replayed: bool) -> Response {
    let status = match StatusCode::from_u16(answer.status) {
        Ok(StatusCode::CREATED) if replayed => StatusCode::OK,
        Ok(status) => status,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let replayed = HeaderValue::from_static(if replayed { "true" } else { "false" });
    let json = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, json), (IDEMPOTENT_REPLAY, replayed)], answer.body).into_response()
}
