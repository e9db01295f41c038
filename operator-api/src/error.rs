//! Errors of requests: the problem that the client receives, and the log line.

use std::error::Error;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use payment_ledger::LedgerError;
use payment_ledger::operator::changes::ChangeError;
use payment_ledger::operator::decisions::{DecideError, DecisionRefusedError};
use reconciliation::correction::CorrectionBar;
use service_kit::problem::Problem;

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
}

impl From<DecideError> for ApiError {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::Refused(refused) => Self::Refused(refusal(&refused)),
            DecideError::Ledger(error) => Self::Ledger(error),
        }
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        let nothing = |why: String| format!("nothing was changed: {why}");
        match error {
            ChangeError::Text(refused) => Self::Refused(refusal(&refused)),
            ChangeError::Unknown(why) => Self::Refused(Problem::missing("change_not_found", nothing(why))),
            ChangeError::SameOperator(why) => Self::Refused(same_operator(nothing(why))),
            ChangeError::Role(why) => Self::Refused(role_missing(nothing(why))),
            ChangeError::Barred(why) => Self::Refused(Problem::conflict("change_refused", nothing(why))),
            ChangeError::Ledger(error) => Self::Ledger(error),
        }
    }
}

impl From<CorrectionBar> for ApiError {
    fn from(bar: CorrectionBar) -> Self {
        let detail = format!("nothing was decided: {bar}");
        match bar {
            CorrectionBar::Contradicted { .. } => {
                let detail = format!("{detail}; withdraw the proposal");
                Self::Refused(Problem::conflict("contradicted_by_switch", detail))
            }
            CorrectionBar::Unanswered { .. } => {
                Self::Refused(Problem::conflict("switch_not_answered", detail).retry_after(RETRY_AFTER))
            }
            CorrectionBar::Ledger(error) => Self::Ledger(error),
        }
    }
}

/// The problem of a refused decision; nothing was written.
fn refusal(refused: &DecisionRefusedError) -> Problem {
    let detail = format!("nothing was decided: {refused}");
    match refused {
        DecisionRefusedError::UnknownPayment(_) => Problem::missing("payment_not_found", detail),
        DecisionRefusedError::UnknownDecision(_) => Problem::missing("decision_not_found", detail),
        DecisionRefusedError::UnknownException(_) => Problem::missing("exception_not_found", detail),
        DecisionRefusedError::MissingReason
        | DecisionRefusedError::TooLong(_)
        | DecisionRefusedError::InvisibleCharacters(_)
        | DecisionRefusedError::MissingOperator
        | DecisionRefusedError::InvalidOperator => Problem::unprocessable("text_invalid", detail),
        DecisionRefusedError::MissingEvidence(_) | DecisionRefusedError::MissingCorrectionEvidence(_) => {
            Problem::unprocessable("evidence_missing", detail)
        }
        DecisionRefusedError::SameOperator(_) => same_operator(detail),
        _ => Problem::conflict("decision_refused", detail),
    }
}

/// 403: the operator lacks a role.
pub(crate) fn role_missing(detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "role_missing", "The operator lacks a role").detail(detail)
}

/// 403: four eyes.
fn same_operator(detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "same_operator", "Another operator must confirm").detail(detail)
}

impl ApiError {
    /// The problem for the client; failures on our side are logged here.
    fn into_problem(self) -> Problem {
        match self {
            Self::Refused(problem) => problem,
            Self::Ledger(LedgerError::UnknownPayment(id)) => payment_not_found(&id),
            // Behind the checks of this process: the session ended, or a role was taken away, in this moment; else a defect.
            Self::Ledger(error) if error.is_not_allowed() => {
                tracing::error!(
                    error = &error as &dyn Error,
                    "the database refused what an operator decided, as not allowed in the operator's session; the operator-api answered with 403"
                );
                Problem::new(StatusCode::FORBIDDEN, "not_allowed", "The database refused the operator's action").detail(
                    "the database refused the action in this session: it has ended, or a role was taken away; log in again, and report the request id to the service's engineers if that does not help",
                )
            }
            Self::Ledger(error @ LedgerError::Unavailable(_)) => {
                tracing::warn!(
                    error = &error as &dyn Error,
                    "the operator-api answered a request with 503 because the ledger's database failed or did not answer"
                );
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", "The database is unavailable")
                    .detail("the service's database did not answer and the outcome of the request is unknown; a decision is recorded once if the same request is repeated, a change is to be looked up first")
                    .retry_after(RETRY_AFTER)
            }
            defect @ Self::Ledger(_) => {
                tracing::error!(
                    error = &defect as &dyn Error,
                    "the operator-api answered a request with 500 because of an internal error"
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

/// 404: no such payment.
pub(crate) fn payment_not_found(id: &str) -> Problem {
    Problem::missing("payment_not_found", format!("no payment {} exists; check the id", excerpt(id)))
}

/// 404: no such decision.
pub(crate) fn decision_not_found(id: &str) -> Problem {
    Problem::missing("decision_not_found", format!("no decision {} exists; check the id", excerpt(id)))
}

/// 404: no such change.
pub(crate) fn change_not_found(id: &str) -> Problem {
    Problem::missing("change_not_found", format!("no change {} exists; check the id", excerpt(id)))
}

/// 404: no such account.
pub(crate) fn account_not_found(tenant: &str, account: &str) -> Problem {
    let detail = format!("tenant {} has no account {}; check both", excerpt(tenant), excerpt(account));
    Problem::missing("account_not_found", detail)
}

/// The beginning of a text that a client sent, short enough for a response.
fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}
