//! What a caller sees when a request fails, and what the log keeps of it.

use std::error::Error;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use idempotency::IdempotencyError;
use idempotency::http::Refusal;
use outbound_webhooks::WebhooksError;
use payment_ledger::LedgerError;
use service_kit::problem::Problem;

use crate::idempotent;

/// After so long a repeat may find the store back, or the twin gone.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A request without success.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The caller's doing: it is told what to change.
    #[error(transparent)]
    Refused(#[from] Problem),
    /// The ledger has no answer, or a defect.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The idempotency store has no answer, or a defect.
    #[error(transparent)]
    Idempotency(IdempotencyError),
    /// A row of webhook endpoints that cannot be read.
    #[error(transparent)]
    Webhooks(WebhooksError),
    /// An answer that cannot be written as JSON.
    #[error("the answer cannot be written")]
    Unwritable(#[from] serde_json::Error),
}

impl From<sqlx::Error> for ApiError {
    fn from(error: sqlx::Error) -> Self {
        Self::Ledger(error.into())
    }
}

impl From<IdempotencyError> for ApiError {
    fn from(error: IdempotencyError) -> Self {
        match error {
            IdempotencyError::Database(error) => error.into(),
            other => Self::Idempotency(other),
        }
    }
}

impl From<WebhooksError> for ApiError {
    fn from(error: WebhooksError) -> Self {
        match error {
            WebhooksError::Database(error) => error.into(),
            other => Self::Webhooks(other),
        }
    }
}

impl ApiError {
    /// The problem that the caller is shown; what is not its doing is logged here.
    fn into_problem(self) -> Problem {
        match self {
            Self::Refused(problem) => problem,
            Self::Ledger(LedgerError::UnknownPayment(id)) => payment_not_found(&id),
            Self::Ledger(error @ LedgerError::Unavailable(_)) => {
                tracing::warn!(error = &error as &dyn Error, "the store is unavailable");
                store_unavailable()
            }
            Self::Idempotency(error) if Refusal::from(&error) != Refusal::Defect => {
                tracing::warn!(error = &error as &dyn Error, "the idempotency store has no answer");
                idempotent::problem(&Refusal::from(&error))
            }
            defect => {
                tracing::error!(error = &defect as &dyn Error, "a request met a defect");
                Problem::internal()
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.into_problem().into_response()
    }
}

/// 503: what the request did is not known, so it must be repeated under the same key.
fn store_unavailable() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", "The store is unavailable")
        .detail("repeat the request, with the same Idempotency-Key if it has one")
        .retry_after(RETRY_AFTER)
}

/// 503: nobody could verify what an endpoint is sent.
pub(crate) fn webhooks_not_configured() -> Problem {
    let title = "Webhook endpoints are not set up";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "webhooks_not_configured", title)
        .detail("the service has no outbound_webhooks.master_key, so no secret can be made; nothing was done")
}

/// 404, for other tenants' payments too.
pub(crate) fn payment_not_found(id: &str) -> Problem {
    Problem::missing("payment_not_found", format!("there is no payment {}", excerpt(id)))
}

pub(crate) fn account_not_found(id: &str) -> Problem {
    Problem::missing("account_not_found", format!("you have no account {}", excerpt(id)))
}

/// The beginning of something a caller sent, short enough to be sent back.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}
