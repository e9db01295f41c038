//! Errors of request handlers, and the responses that they become.

use axum::response::{IntoResponse, Response};
use service_kit::problem::Problem;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The caller receives the problem as it is.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The error is logged; the caller only learns that the outcome is unknown.
    #[error(
        "the mock switch's database did not answer and the outcome of the request is unknown; retry the request"
    )]
    Database(#[from] sqlx::Error),
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => problem.into_response(),
            Self::Database(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a request to the mock switch failed because its database did not answer"
                );
                match error {
                    sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => {
                        Problem::unavailable("the mock switch's database did not answer and the outcome of the request is unknown; retry the request")
                            .into_response()
                    }
                    _ => Problem::internal().into_response(),
                }
            }
        }
    }
}
