//! Extractors with problems as rejections.

use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use bytes::Bytes;
use service_kit::problem::Problem;

/// The unparsed request body.
pub(crate) struct RawBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Bytes::from_request(request, state).await.map(Self).map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The request body is too large")
                    .detail(rejection.body_text())
            }
            _ => Problem::bad_request("unreadable_body", rejection.body_text()),
        })
    }
}
