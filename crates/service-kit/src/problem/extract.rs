//! axum's extractors with problems as rejections; axum itself rejects with undocumented plain text.
//!
//! Wrong syntax and wrong shape are both 400; 422 is reserved for well-formed requests that are refused.

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Problem;

/// A JSON body, in and out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json<T>(pub T);

/// Path parameters.
#[derive(Debug, Clone, Copy)]
pub struct Path<T>(pub T);

/// Query parameters.
#[derive(Debug, Clone, Copy)]
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let axum::Json(raw) = axum::Json::<Box<RawValue>>::from_request(request, state).await?;
        // A derived struct would also accept an array, in the undocumented order of its fields.
        if !raw.get().starts_with('{') {
            return Err(Problem::bad_request("malformed_json", "the request body must be a JSON object"));
        }
        let value = serde_json::from_str(raw.get()).map_err(|error| {
            Problem::bad_request("malformed_json", format!("the request body cannot be parsed: {error}"))
        })?;
        Ok(Self(value))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let axum::extract::Path(value) = axum::extract::Path::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let axum::extract::Query(value) = axum::extract::Query::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        let detail = rejection.body_text();
        match rejection.status() {
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "The request body must be application/json",
            )
            .detail(detail),
            StatusCode::PAYLOAD_TOO_LARGE => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The request body is too large")
                    .detail(detail)
            }
            _ => Self::bad_request("malformed_json", detail),
        }
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        if rejection.status().is_server_error() {
            // Only a handler that does not match its route gets here: a defect of ours.
            tracing::error!(
                reason = rejection.body_text(),
                "the handler of an HTTP route reads other path parameters than the route has; the request is answered with 500"
            );
            return Self::internal();
        }
        Self::bad_request("malformed_path", rejection.body_text())
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request("malformed_query", rejection.body_text())
    }
}
