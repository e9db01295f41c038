//! `/operator/v1/exceptions`: recorded contradictions, and what operators decide about them.

use axum::http::StatusCode;
use jiff::Timestamp;
use openapi_kit::ProblemDocument;
use payment_ledger::access::operators::OperatorRole;
use payment_ledger::reads::queues::{ExceptionFilter, ExceptionView};
use payment_protocol::action::Correction;
use payment_protocol::ids::PaymentId;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Query};
use utoipa::{IntoParams, ToSchema};

use super::bounds::Limit;
use super::decisions::{self, Decision, Reason};
use crate::auth::LoggedIn;
use crate::error::{ApiError, payment_not_found};

/// An exception.
#[derive(Serialize, ToSchema)]
pub(crate) struct Exception {
    exception_id: i64,
    /// Missing if it matches no payment.
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_id: Option<String>,
    /// The kind of contradiction; the runbook has a section for each.
    kind: String,
    /// The contradiction in words.
    detail: String,
    #[schema(value_type = String, format = DateTime)]
    opened_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    closed_at: Option<Timestamp>,
    /// The decision that closed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_by: Option<String>,
}

impl From<ExceptionView> for Exception {
    fn from(view: ExceptionView) -> Self {
        Self {
            exception_id: view.exception_id,
            payment_id: view.payment_id,
            kind: view.kind,
            detail: view.detail,
            opened_at: view.opened_at,
            closed_at: view.closed_at,
            closed_by: view.closed_by,
        }
    }
}

/// Exceptions.
#[derive(Serialize, ToSchema)]
pub(crate) struct Exceptions {
    exceptions: Vec<Exception>,
}

/// Which exceptions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filter {
    /// Closed ones, too.
    #[serde(default)]
    with_closed: bool,
    /// Only those of this payment.
    #[serde(default)]
    payment_id: Option<String>,
    /// Only those of this kind.
    #[serde(default)]
    kind: Option<String>,
    /// At most this many. Default 50.
    #[serde(default)]
    #[param(value_type = i64, minimum = 1, maximum = 1000)]
    limit: Limit,
}

/// List exceptions
///
/// Open ones, oldest first.
#[utoipa::path(
    get, path = "/operator/v1/exceptions", tag = "exceptions", security(("session" = [])), params(Filter),
    responses(
        (status = 200, description = "The exceptions", body = Exceptions),
        (status = 404, description = "payment_not_found", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn list_exceptions(
    logged_in: LoggedIn,
    Query(filter): Query<Filter>,
) -> Result<Json<Exceptions>, ApiError> {
    let payment_id =
        filter.payment_id.map(|id| PaymentId::new(id.as_str()).map_err(|_| payment_not_found(&id)));
    let filter = ExceptionFilter {
        with_closed: filter.with_closed,
        payment_id: payment_id.transpose()?,
        kind: filter.kind,
        limit: filter.limit.get(),
    };
    let exceptions = logged_in.ledger.exceptions(&filter).await?;
    Ok(Json(Exceptions { exceptions: exceptions.into_iter().map(Exception::from).collect() }))
}

/// The number of an exception.
#[derive(Serialize, ToSchema)]
pub(crate) struct OpenedException {
    exception_id: i64,
    payment_id: String,
}

/// Open an exception
///
/// About an ended payment of which an operator knows what no report says, so that a correction can be proposed. Moves no money.
#[utoipa::path(
    post, path = "/operator/v1/payments/{payment_id}/exceptions", tag = "exceptions", security(("session" = [])),
    params(("payment_id" = String, Path, description = "Id of an ended payment")),
    request_body = Reason,
    responses(
        (status = 201, description = "The exception is open, now or since an earlier request", body = OpenedException),
        (status = 404, description = "payment_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "decision_refused: the payment is still open", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "text_invalid", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn open_exception(
    logged_in: LoggedIn,
    Path(payment_id): Path<String>,
    Json(Reason { reason }): Json<Reason>,
) -> Result<(StatusCode, Json<OpenedException>), ApiError> {
    logged_in.require(&[OperatorRole::Operator])?;
    let id = PaymentId::new(payment_id.as_str()).map_err(|_| payment_not_found(&payment_id))?;
    let exception_id = logged_in.ledger.open_exception_by_operator(&id, logged_in.name(), &reason).await?;
    Ok((StatusCode::CREATED, Json(OpenedException { exception_id, payment_id })))
}

/// What operators decide about an exception.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExceptionAction {
    /// Debit a transfer that settled and was not debited: from the customer, else from the bank's claims account.
    LateDebit,
    /// Return the debited amount of a payment whose transfer came back or never settled.
    ReturnCredit,
    /// Write a payment's amount on the bank's claims account off as a loss.
    WriteOff,
    /// Close it without moving money; one operator suffices.
    Close,
}

/// A proposal about an exception.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewExceptionDecision {
    action: ExceptionAction,
    /// Recorded permanently.
    #[schema(min_length = 1, max_length = 2000)]
    reason: String,
    /// How the transfer ended, and where the proof is kept. Required for `late_debit` and `return_credit`.
    #[serde(default)]
    #[schema(max_length = 2000)]
    evidence: Option<String>,
}

/// Propose a decision about an exception
///
/// A correction (`late_debit`, `return_credit`, `write_off`) waits for another operator's confirmation; `close` moves no money and is final.
/// A repeat by the same operator returns the first decision.
#[utoipa::path(
    post, path = "/operator/v1/exceptions/{exception_id}/decisions", tag = "exceptions", security(("session" = [])),
    params(("exception_id" = i64, Path, description = "Number of the exception")),
    request_body = NewExceptionDecision,
    responses(
        (status = 201, description = "The decision is proposed, or done if it closes the exception", body = Decision),
        (status = 404, description = "exception_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "decision_refused", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "text_invalid, evidence_missing", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn decide_exception(
    logged_in: LoggedIn,
    Path(exception_id): Path<i64>,
    Json(new): Json<NewExceptionDecision>,
) -> Result<(StatusCode, Json<Decision>), ApiError> {
    logged_in.require(&[OperatorRole::Operator])?;
    let (ledger, by) = (&logged_in.ledger, logged_in.name());
    let correction = match new.action {
        ExceptionAction::LateDebit => Some(Correction::LateDebit),
        ExceptionAction::ReturnCredit => Some(Correction::ReturnCredit),
        ExceptionAction::WriteOff => Some(Correction::WriteOff),
        ExceptionAction::Close => None,
    };
    let decision_id = match correction {
        Some(correction) => {
            let evidence = new.evidence.as_deref();
            ledger.propose_correction(exception_id, correction, by, &new.reason, evidence).await?.decision_id
        }
        None => ledger.close_exception(exception_id, by, &new.reason).await?,
    };
    tracing::info!(operator = by, decision = %decision_id, exception_id, "an operator decided about an exception");
    Ok((StatusCode::CREATED, Json(decisions::read(ledger, &decision_id).await?)))
}
