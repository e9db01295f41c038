//! `/operator/v1/decisions`, and proposals about a payment.

use openapi_kit::{ProblemDocument, documented_enum};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use crash_point::crash_point;
use jiff::Timestamp;
use payment_ledger::operator::decisions::{ConfirmOutcome, DecisionStatus, DecisionView};
use payment_ledger::{Ledger, access::operators::OperatorRole};
use payment_protocol::decision::Action;
use payment_protocol::ids::{DecisionId, PaymentId};
use reconciliation::correction;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Query};
use tokio::time::{Instant, sleep};
use utoipa::{IntoParams, ToSchema};

use super::bounds::DecisionWait;
use crate::app::App;
use crate::auth::LoggedIn;
use crate::delivery;
use crate::error::{ApiError, decision_not_found, payment_not_found};

/// Pause between two reads of a decision that somebody waits for.
const READ_INTERVAL: Duration = Duration::from_millis(200);

documented_enum!(pub(crate) PaymentAction, Action, "What operators decide about an open payment. `debit` and `release` move money: another operator confirms them.");
documented_enum!(pub(crate) Status, DecisionStatus, "`proposed` waits for another operator, `confirmed` for the payment's workflow; the others are final.");

/// A proposal about a payment that needs an operator.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDecision {
    #[schema(value_type = PaymentAction)]
    action: Action,
    /// Recorded permanently.
    #[schema(min_length = 1, max_length = 2000)]
    reason: String,
    /// How the transfer ended, and where the proof is kept. Required for `debit` and `release`.
    #[serde(default)]
    #[schema(max_length = 2000)]
    evidence: Option<String>,
}

/// Why an operator confirms or withdraws.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reason {
    /// Recorded permanently.
    #[schema(min_length = 1, max_length = 2000)]
    pub(super) reason: String,
}

/// A decision.
#[derive(Serialize, ToSchema)]
pub(crate) struct Decision {
    decision_id: String,
    /// Missing for an exception without a payment.
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exception_id: Option<i64>,
    /// `retry_cancel`, `debit`, `release`, `late_debit`, `return_credit`, `write_off` or `close`.
    action: &'static str,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<String>,
    proposed_by: String,
    #[schema(value_type = String, format = DateTime)]
    proposed_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    confirmed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirm_reason: Option<String>,
    #[schema(value_type = Status)]
    status: DecisionStatus,
    /// What came of it, in words; missing while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    closed_at: Option<Timestamp>,
}

impl From<DecisionView> for Decision {
    fn from(view: DecisionView) -> Self {
        let result = view.result();
        Self {
            decision_id: view.decision_id.to_string(),
            payment_id: view.payment_id,
            exception_id: view.exception_id,
            action: view.action.as_str(),
            reason: view.reason,
            evidence: view.evidence,
            proposed_by: view.proposed_by,
            proposed_at: view.proposed_at,
            confirmed_by: view.confirmed_by,
            confirmed_at: view.confirmed_at,
            confirm_reason: view.confirm_reason,
            status: view.status,
            result,
            closed_at: view.closed_at,
        }
    }
}

/// Propose a decision about a payment
///
/// A repeat of the same proposal by the same operator returns the first one. `retry_cancel` moves no money and needs no confirmation.
#[utoipa::path(
    post, path = "/operator/v1/payments/{payment_id}/decisions", tag = "decisions", security(("session" = [])),
    params(("payment_id" = String, Path, description = "Id of a payment that needs an operator")),
    request_body = NewDecision,
    responses(
        (status = 201, description = "The decision is proposed, or confirmed if it moves no money", body = Decision),
        (status = 404, description = "payment_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "decision_refused: the payment's state, its reason or an open decision does not allow it",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "text_invalid, evidence_missing", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn propose_decision(
    State(app): State<Arc<App>>,
    logged_in: LoggedIn,
    Path(payment_id): Path<String>,
    Json(new): Json<NewDecision>,
) -> Result<(StatusCode, Json<Decision>), ApiError> {
    logged_in.require(&[OperatorRole::Operator])?;
    let payment_id = PaymentId::new(payment_id.as_str()).map_err(|_| payment_not_found(&payment_id))?;
    let by = logged_in.name();
    let proposed =
        logged_in.ledger.propose(&payment_id, new.action, by, &new.reason, new.evidence.as_deref()).await?;
    if let Some(message) = proposed.message {
        crash_point("after storing a decision of one operator");
        delivery::start(logged_in.ledger.clone(), Arc::clone(&app.updates), message);
    }
    tracing::info!(
        operator = by,
        decision = %proposed.decision_id,
        payment.id = %payment_id,
        action = new.action.as_str(),
        "an operator proposed a decision"
    );
    Ok((StatusCode::CREATED, Json(read(&logged_in.ledger, &proposed.decision_id).await?)))
}

/// How long to wait.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wait {
    /// Answer once the decision is final, after this many seconds at the latest; at most 30. At once where too many requests wait already.
    #[serde(default)]
    #[param(value_type = i64, minimum = 0, maximum = 30)]
    wait: DecisionWait,
}

/// Retrieve a decision
#[utoipa::path(
    get, path = "/operator/v1/decisions/{decision_id}", tag = "decisions", security(("session" = [])),
    params(("decision_id" = String, Path, description = "Id of the decision"), Wait),
    responses(
        (status = 200, description = "The decision", body = Decision),
        (status = 404, description = "decision_not_found", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retrieve_decision(
    State(app): State<Arc<App>>,
    logged_in: LoggedIn,
    Path(id): Path<String>,
    Query(Wait { wait }): Query<Wait>,
) -> Result<Json<Decision>, ApiError> {
    let id = decision_id(&id)?;
    let deadline = Instant::now() + Duration::from_secs(u64::try_from(wait.get()).unwrap_or(0));
    let may_wait = app.waits.try_acquire();
    loop {
        let decision = read(&logged_in.ledger, &id).await?;
        let is_due = Instant::now() >= deadline || may_wait.is_err() || app.stopping.is_cancelled();
        if decision.closed_at.is_some() || is_due {
            return Ok(Json(decision));
        }
        sleep(READ_INTERVAL).await;
    }
}

/// Confirm a decision
///
/// Another operator than the one who proposed it. A correction is posted at once, after the switch was queried; a decision about an open
/// payment is applied by its workflow, which queries the switch. A repeat has no further effect.
#[utoipa::path(
    post, path = "/operator/v1/decisions/{decision_id}/confirm", tag = "decisions", security(("session" = [])),
    params(("decision_id" = String, Path, description = "Id of the decision")),
    request_body = Reason,
    responses(
        (status = 200, description = "The decision is confirmed", body = Decision),
        (status = 403, description = "same_operator: who proposed it cannot confirm it. role_missing, not_allowed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "decision_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "decision_refused. contradicted_by_switch: the switch reports otherwise. switch_not_answered: \
                                      the switch must answer first", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "text_invalid", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn confirm_decision(
    State(app): State<Arc<App>>,
    logged_in: LoggedIn,
    Path(id): Path<String>,
    Json(Reason { reason }): Json<Reason>,
) -> Result<Json<Decision>, ApiError> {
    logged_in.require(&[OperatorRole::Approver])?;
    let id = decision_id(&id)?;
    // A correction is posted by its confirmation; for a decision about an open payment the workflow queries the switch.
    correction::verify_proposed(&logged_in.ledger, &id, |name| app.switch(name).cloned()).await?;
    match logged_in.ledger.confirm(&id, logged_in.name(), &reason).await? {
        ConfirmOutcome::ToApply(message) => {
            crash_point("after storing a decision");
            delivery::start(logged_in.ledger.clone(), Arc::clone(&app.updates), message);
        }
        ConfirmOutcome::Corrected { .. } => {}
    }
    tracing::info!(operator = logged_in.name(), decision = %id, "an operator confirmed a decision");
    Ok(Json(read(&logged_in.ledger, &id).await?))
}

/// Withdraw a decision
///
/// A proposal that no other operator has confirmed; by any operator or approver. A repeat has no further effect.
#[utoipa::path(
    post, path = "/operator/v1/decisions/{decision_id}/withdraw", tag = "decisions", security(("session" = [])),
    params(("decision_id" = String, Path, description = "Id of the decision")),
    request_body = Reason,
    responses(
        (status = 200, description = "The decision is withdrawn; nothing was applied", body = Decision),
        (status = 404, description = "decision_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "decision_refused: it is confirmed or final", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "text_invalid", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn withdraw_decision(
    logged_in: LoggedIn,
    Path(id): Path<String>,
    Json(Reason { reason }): Json<Reason>,
) -> Result<Json<Decision>, ApiError> {
    logged_in.require(&[OperatorRole::Operator, OperatorRole::Approver])?;
    let id = decision_id(&id)?;
    logged_in.ledger.withdraw(&id, logged_in.name(), &reason).await?;
    tracing::info!(operator = logged_in.name(), decision = %id, "an operator withdrew a decision");
    Ok(Json(read(&logged_in.ledger, &id).await?))
}

/// A decision by its id.
pub(super) async fn read(ledger: &Ledger, id: &DecisionId) -> Result<Decision, ApiError> {
    let decision = ledger.decision(id).await?;
    Ok(decision.ok_or_else(|| decision_not_found(id.as_str()))?.into())
}

/// Parses a decision id of a path; a malformed id is not found.
fn decision_id(id: &str) -> Result<DecisionId, ApiError> {
    DecisionId::new(id).map_err(|_| decision_not_found(id).into())
}
