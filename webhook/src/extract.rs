//! What routes take from a request besides JSON, with problems as rejections.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use bytes::Bytes;
use idempotency::IdempotencyKey;
use service_kit::problem::Problem;

/// Header with the key of a request that changes something (S3.1).
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The key of the request, mandatory.
pub(crate) struct Key(pub(crate) IdempotencyKey);

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut values = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
        let value = values.next().ok_or_else(|| {
            Problem::bad_request(
                "idempotency_key_missing",
                "send an Idempotency-Key, the same one on every repeat of this request",
            )
        })?;
        let malformed = |detail: String| Problem::bad_request("idempotency_key_malformed", detail);
        if values.next().is_some() {
            return Err(malformed("there is more than one Idempotency-Key".into()));
        }
        let key = IdempotencyKey::parse(value.as_bytes()).map_err(|error| malformed(error.to_string()))?;
        tracing::Span::current().record("idempotency.key", key.as_str());
        Ok(Self(key))
    }
}

/// The body as it came.
pub(crate) struct RawBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Bytes::from_request(request, state).await.map(Self).map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large")
                    .detail(rejection.body_text())
            }
            _ => Problem::bad_request("unreadable_body", rejection.body_text()),
        })
    }
}
