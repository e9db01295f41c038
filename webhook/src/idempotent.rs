//! Idempotency of requests with a transaction of their own, and the layer's refusals as problems of this API (S4.1).

use axum::response::{IntoResponse as _, Response};
use idempotency::http::{self, IdempotencyContext, RequestRefusal};
use idempotency::{ClaimOutcome, Fingerprint, IdempotencyError, Lease, StoredResponse};
use jiff::Timestamp;
use postgres_kit::{Connection, Transaction};
use service_kit::problem::Problem;
use trace_kit::attribute;

use crate::app::App;
use crate::error::ApiError;

/// The problem for a refusal.
pub(crate) fn problem(refusal: &RequestRefusal) -> Problem {
    let detail = refusal.to_string();
    let problem = match refusal {
        RequestRefusal::KeyMissing | RequestRefusal::KeyRepeated | RequestRefusal::KeyMalformed(_) => {
            Problem::bad_request(refusal.code(), detail)
        }
        RequestRefusal::InProgress => Problem::conflict(refusal.code(), detail),
        RequestRefusal::Mismatch => Problem::unprocessable(refusal.code(), detail),
        RequestRefusal::StoreUnavailable => {
            Problem::new(refusal.status(), refusal.code(), "The database is unavailable").detail(detail)
        }
        RequestRefusal::Defect => Problem::internal(),
    };
    match refusal.retry_after() {
        Some(wait) => problem.retry_after(wait),
        None => problem,
    }
}

/// The refusal response of the idempotency layer.
pub(crate) fn refusal_response(refusal: RequestRefusal) -> Response {
    problem(&refusal).into_response()
}

/// Names the key of the request in its trace, hashed: the retries of one operation have the same value (S3.8).
pub(crate) fn record_key(context: &IdempotencyContext) {
    let scope = context.scope();
    trace_kit::set_key_on_current(&[scope.tenant, scope.client, scope.key.as_str()]);
}

/// Says in the trace of the request whether its response is that of an earlier request.
pub(crate) fn record_replayed(is_replay: bool) {
    trace_kit::set_on_current(attribute::REPLAYED, is_replay);
}

/// Outcome of claiming the key of a request.
#[expect(clippy::large_enum_variant, reason = "there is one for each request, and it is taken apart at once")]
pub(crate) enum RequestClaimOutcome {
    /// The key is unused: execute the request in this transaction.
    Claimed(ClaimedTransaction),
    /// The request was executed: replay this response.
    Replay(StoredResponse),
}

/// A transaction that holds the key. If it is not completed, it changes nothing.
pub(crate) struct ClaimedTransaction {
    tx: Transaction,
    lease: Lease,
}

/// Claims the key for this request.
///
/// # Errors
/// 409 `transaction_in_progress`, 422 `payload_mismatch`, or the store does not answer.
pub(crate) async fn claim(
    app: &App,
    context: &IdempotencyContext,
    fingerprint: &Fingerprint,
) -> Result<RequestClaimOutcome, ApiError> {
    record_key(context);
    app.breaker.check()?;
    let result = match attempt(app, context, fingerprint).await {
        Err(IdempotencyError::PartitionMissing) => {
            idempotency::create_partitions(app.ledger.pool()).await?;
            attempt(app, context, fingerprint).await
        }
        result => result,
    };
    app.breaker.record(result.as_ref().err());
    let (tx, outcome) = result?;
    record_replayed(matches!(outcome, ClaimOutcome::Replay(_)));
    if let ClaimOutcome::Claimed(lease) = outcome {
        return Ok(RequestClaimOutcome::Claimed(ClaimedTransaction { tx, lease }));
    }
    // Awaited: a dropped transaction would hold the key for a moment longer.
    tx.rollback().await?;
    match outcome {
        ClaimOutcome::Replay(response) => Ok(RequestClaimOutcome::Replay(response)),
        ClaimOutcome::Mismatch => Err(problem(&RequestRefusal::Mismatch).into()),
        ClaimOutcome::Claimed(_) | ClaimOutcome::InProgress => {
            Err(problem(&RequestRefusal::InProgress).into())
        }
    }
}

async fn attempt(
    app: &App,
    context: &IdempotencyContext,
    fingerprint: &Fingerprint,
) -> Result<(Transaction, ClaimOutcome), IdempotencyError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the claim and the effect of a request share one transaction"
    )]
    let mut tx = app.ledger.pool().begin().await?;
    let outcome = idempotency::claim(&mut tx, &context.scope(), fingerprint, &app.idempotency).await?;
    Ok((tx, outcome))
}

impl ClaimedTransaction {
    /// The connection that holds the key, for every change that must be committed together with it.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.tx
    }

    /// When the key was claimed, by the database's clock.
    pub(crate) fn claimed_at(&self) -> Timestamp {
        self.lease.claimed_at()
    }

    /// Stores the response and commits. If the commit is not confirmed, the outcome is unknown; a retry returns it.
    pub(crate) async fn complete(self, response: StoredResponse) -> Result<Response, ApiError> {
        Ok(http::json_response(self.store(response).await?, false))
    }

    /// As [`ClaimedTransaction::complete`], for a response that is sent in another form than it is stored.
    pub(crate) async fn store(mut self, response: StoredResponse) -> Result<StoredResponse, ApiError> {
        self.lease.complete(&mut self.tx, &response).await?;
        self.tx.commit().await?;
        Ok(response)
    }

    /// Releases the key unused and returns the error.
    pub(crate) async fn refuse<T>(self, error: impl Into<ApiError>) -> Result<T, ApiError> {
        self.release().await?;
        Err(error.into())
    }

    /// Releases the key unused.
    pub(crate) async fn release(self) -> Result<(), ApiError> {
        Ok(self.tx.rollback().await?)
    }
}
