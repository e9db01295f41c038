//! Carries a request out once per key, and answers its repeats (S4.1).

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use idempotency::{Claim, Fingerprint, Lease, Scope};
use jiff::Timestamp;
use service_kit::problem::Problem;
use sqlx::{PgConnection, PgTransaction};

use crate::app::App;
use crate::error::{ApiError, RETRY_AFTER};

/// Says whether the answer is the first one or a copy of it.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replay");

/// A request that may be carried out.
pub(crate) enum Begun {
    /// For the first time.
    Held(Held),
    /// It was carried out: the body of its answer, byte for byte. With which status a repeat is
    /// answered, the route knows.
    Replay(Vec<u8>),
}

/// A transaction that holds the key. What is not completed never happened.
pub(crate) struct Held {
    tx: PgTransaction<'static>,
    lease: Lease,
}

/// Claims the key for this request.
///
/// # Errors
/// 409 `transaction_in_progress`, 422 `payload_mismatch`, or a store without an answer.
pub(crate) async fn begin(app: &App, scope: &Scope<'_>, request: &Fingerprint) -> Result<Begun, ApiError> {
    let mut tx = app.ledger.pool().begin().await?;
    let claim = idempotency::claim(&mut tx, scope, request, &app.terms).await?;
    if let Claim::New(lease) = claim {
        return Ok(Begun::Held(Held { tx, lease }));
    }
    // Awaited: a dropped transaction would hold the key for a moment longer.
    tx.rollback().await?;
    match claim {
        Claim::Replay { body, .. } => Ok(Begun::Replay(body)),
        Claim::Mismatch => Err(payload_mismatch().into()),
        Claim::New(_) | Claim::InProgress => {
            let detail = "the first request with this Idempotency-Key is still being carried out";
            Err(Problem::conflict("transaction_in_progress", detail).retry_after(RETRY_AFTER).into())
        }
    }
}

impl Held {
    /// The connection that holds the key: what must be true together goes through it.
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    /// When the key was claimed, by the database's clock.
    pub(crate) fn claimed_at(&self) -> Timestamp {
        self.lease.claimed_at()
    }

    /// Stores the answer and commits. Without an answer to the commit the outcome is unknown, and the
    /// repeat will show it.
    pub(crate) async fn complete(mut self, status: StatusCode, body: &[u8]) -> Result<(), ApiError> {
        self.lease.complete(&mut self.tx, status.as_u16(), body).await?;
        Ok(self.tx.commit().await?)
    }

    /// Gives the key back unused.
    pub(crate) async fn give_back(self) -> Result<(), ApiError> {
        Ok(self.tx.rollback().await?)
    }
}

/// 422: the key was used for another request (S3.3).
pub(crate) fn payload_mismatch() -> Problem {
    let detail = "this Idempotency-Key was used for another request; a new request needs a new key";
    Problem::unprocessable("payload_mismatch", detail)
}

/// A JSON answer that says whether it is a replay.
pub(crate) fn answer(status: StatusCode, replayed: bool, body: Vec<u8>) -> Response {
    let replayed = HeaderValue::from_static(if replayed { "true" } else { "false" });
    let json = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, json), (REPLAYED, replayed)], body).into_response()
}
