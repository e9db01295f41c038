//! Errors of requests: the problem that the client receives, and the log line.

use std::error::Error;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use idempotency::IdempotencyError;
use idempotency::http::RequestRefusal;
use outbound_webhooks::WebhooksError;
use payment_ledger::LedgerError;
use service_kit::problem::Problem;

use crate::idempotent;

/// Pause after which the database may answer again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The request was refused; the problem says what to change.
    #[error(transparent)]
    Refused(#[from] Problem),
    /// The ledger did not answer, or has a defect.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The idempotency store did not answer, or has a defect.
    #[error(transparent)]
    Idempotency(IdempotencyError),
    /// A row of a webhook endpoint cannot be read.
    #[error(transparent)]
    Webhooks(WebhooksError),
    /// A response could not be serialized.
    #[error("a response of the payments API could not be serialized as JSON; this is a software defect")]
    Serialize(#[from] serde_json::Error),
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
    /// The problem for the client; failures on our side are logged here.
    fn into_problem(self) -> Problem {
        match self {
            Self::Refused(problem) => problem,
            Self::Ledger(LedgerError::UnknownPayment(id)) => payment_not_found(&id),
            Self::Ledger(error @ LedgerError::Unavailable(_)) => {
                tracing::warn!(
                    error = &error as &dyn Error,
                    "the payments-api answered a request with 503 because the ledger's database failed or did not answer"
                );
                store_unavailable()
            }
            Self::Idempotency(error) if RequestRefusal::from(&error) != RequestRefusal::Defect => {
                let refusal = RequestRefusal::from(&error);
                tracing::warn!(
                    error = &error as &dyn Error,
                    status = refusal.status().as_u16(),
                    "the payments-api refused a request because of the idempotency store; the client retries the request"
                );
                idempotent::problem(&refusal)
            }
            defect => {
                tracing::error!(
                    error = &defect as &dyn Error,
                    "the payments-api answered a request with 500 because of an internal error"
                );
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

/// 503: the outcome of the request is unknown, so it must be retried with the same key.
fn store_unavailable() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", "The database is unavailable")
        .detail("the service's database did not answer and the outcome of the request is unknown; retry the request with the same Idempotency-Key")
        .retry_after(RETRY_AFTER)
}

/// 503: without a master key no signing secret can be derived.
pub(crate) fn webhooks_not_configured() -> Problem {
    let title = "Webhook endpoints are not configured";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "webhooks_not_configured", title)
        .detail("the service has no outbound_webhooks.master_key to derive signing secrets from and nothing was done; ask the bank to configure it")
}

/// The problem with status 404, also for payments of other tenants.
pub(crate) fn payment_not_found(id: &str) -> Problem {
    Problem::missing("payment_not_found", format!("no payment {} exists; check the id", excerpt(id)))
}

/// The problem with status 404, also for accounts of other tenants.
pub(crate) fn account_not_found(id: &str) -> Problem {
    Problem::missing("account_not_found", format!("no account {} exists; check the id", excerpt(id)))
}

/// 400: a query parameter is malformed.
pub(crate) fn malformed_query(detail: String) -> Problem {
    Problem::bad_request("malformed_query", format!("the query parameter {detail}"))
}

/// The beginning of a text that a client sent, short enough for a response.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}
