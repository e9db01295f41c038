//! What the idempotency layer says, in the form of this API (S4.1).

use axum::response::{IntoResponse as _, Response};
use idempotency::http::{self, Refusal, Ticket};
use idempotency::{Answer, Claim, Fingerprint, IdempotencyError, Lease};
use jiff::Timestamp;
use service_kit::problem::Problem;
use sqlx::{PgConnection, PgTransaction};

use crate::app::App;
use crate::error::ApiError;

/// The problem of a refusal.
pub(crate) fn problem(refusal: &Refusal) -> Problem {
    let detail = refusal.to_string();
    let problem = match refusal {
        Refusal::KeyMissing | Refusal::KeyRepeated | Refusal::KeyMalformed(_) => {
            Problem::bad_request(refusal.code(), detail)
        }
        Refusal::InProgress => Problem::conflict(refusal.code(), detail),
        Refusal::Mismatch => Problem::unprocessable(refusal.code(), detail),
        Refusal::StoreUnavailable => {
            Problem::new(refusal.status(), refusal.code(), "The store is unavailable").detail(detail)
        }
        Refusal::Defect => Problem::internal(),
    };
    match refusal.retry_after() {
        Some(wait) => problem.retry_after(wait),
        None => problem,
    }
}

/// For the layer.
pub(crate) fn refuse(refusal: Refusal) -> Response {
    problem(&refusal).into_response()
}

/// A request that may be carried out in a transaction of its own.
pub(crate) enum Begun {
    /// For the first time.
    Held(Held),
    /// It was carried out: its answer.
    Replay(Answer),
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
pub(crate) async fn begin(app: &App, ticket: &Ticket, request: &Fingerprint) -> Result<Begun, ApiError> {
    app.breaker.check()?;
    let began = match take(app, ticket, request).await {
        Err(IdempotencyError::DayMissing) => {
            idempotency::make_days(app.ledger.pool()).await?;
            take(app, ticket, request).await
        }
        began => began,
    };
    app.breaker.note(began.as_ref().err());
    let (tx, claim) = began?;
    if let Claim::New(lease) = claim {
        return Ok(Begun::Held(Held { tx, lease }));
    }
    // Awaited: a dropped transaction would hold the key for a moment longer.
    tx.rollback().await?;
    match claim {
        Claim::Replay(answer) => Ok(Begun::Replay(answer)),
        Claim::Mismatch => Err(problem(&Refusal::Mismatch).into()),
        Claim::New(_) | Claim::InProgress => Err(problem(&Refusal::InProgress).into()),
    }
}

async fn take(
    app: &App,
    ticket: &Ticket,
    request: &Fingerprint,
) -> Result<(PgTransaction<'static>, Claim), IdempotencyError> {
    let mut tx = app.ledger.pool().begin().await?;
    let claim = idempotency::claim(&mut tx, &ticket.scope(), request, &app.terms).await?;
    Ok((tx, claim))
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
    pub(crate) async fn complete(self, answer: Answer) -> Result<Response, ApiError> {
        Ok(http::write(self.store(answer).await?, false))
    }

    /// As [`Held::complete`], for an answer that goes out otherwise than it is stored.
    pub(crate) async fn store(mut self, answer: Answer) -> Result<Answer, ApiError> {
        self.lease.complete(&mut self.tx, &answer).await?;
        self.tx.commit().await?;
        Ok(answer)
    }

    /// Gives the key back unused, and says why.
    pub(crate) async fn refuse<T>(self, why: impl Into<ApiError>) -> Result<T, ApiError> {
        self.give_back().await?;
        Err(why.into())
    }

    /// Gives the key back unused.
    pub(crate) async fn give_back(self) -> Result<(), ApiError> {
        Ok(self.tx.rollback().await?)
    }
}
