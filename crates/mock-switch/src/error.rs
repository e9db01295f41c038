//! What a handler can fail with, and how it looks from outside.

use axum::response::{IntoResponse, Response};
use service_kit::problem::Problem;

/// Either the caller's problem or our database's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// To be told to the caller as it is.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// To be logged; the caller learns only that the outcome is not known.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => problem.into_response(),
            Self::Database(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the database failed");
                match error {
                    sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => {
                        Problem::unavailable("the database cannot be reached").into_response()
                    }
                    _ => Problem::internal().into_response(),
                }
            }
        }
    }
}
