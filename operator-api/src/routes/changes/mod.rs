//! `/operator/v1/changes`: what operators do to accounts, limits, kill switches, API keys, webhook endpoints, events and the Temporal
//! namespace, and what administrators do to operators.

mod request;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use jiff::Timestamp;
use openapi_kit::{ProblemDocument, documented_enum};
use payment_ledger::access::operators::OperatorRole;
use payment_ledger::admission::kill_switches::KillSwitchTarget;
use payment_ledger::operator::changes::{Change, ChangeError, ChangeFilter, ChangeStatus, ChangeView};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem, Query};
use utoipa::{IntoParams, ToSchema};

use self::request::RequestedChange;
use super::bounds::Limit;
use super::decisions::Reason;
use crate::app::App;
use crate::auth::LoggedIn;
use crate::error::{ApiError, change_not_found};

documented_enum!(pub(crate) StatusOfChange, ChangeStatus, "`proposed` waits for another operator; the others are final.");

/// A change, and why.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewChange {
    change: RequestedChange,
    /// Recorded permanently.
    #[schema(min_length = 1, max_length = 2000)]
    reason: String,
}

/// A change as recorded.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChangeDocument {
    change_id: String,
    /// The kind of the request.
    kind: String,
    /// What it changes. Amounts are in minor units; of a new key there is the id.
    #[schema(value_type = Object)]
    arguments: serde_json::Value,
    /// Whether another operator must confirm it.
    needs_two: bool,
    /// What it changes, as it was when the change was proposed; missing for what did not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    before: Option<serde_json::Value>,
    reason: String,
    proposed_by: String,
    #[schema(value_type = String, format = DateTime)]
    proposed_at: Timestamp,
    /// Who proposed it, if one operator suffices.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirm_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    withdrawn_by: Option<String>,
    #[schema(value_type = StatusOfChange)]
    status: ChangeStatus,
    /// The outcome, or the reason of a withdrawal, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    closed_at: Option<Timestamp>,
}

impl From<ChangeView> for ChangeDocument {
    fn from(view: ChangeView) -> Self {
        Self {
            change_id: view.change_id,
            kind: view.kind,
            arguments: view.arguments,
            needs_two: view.needs_two,
            before: view.before,
            reason: view.reason,
            proposed_by: view.proposed_by,
            proposed_at: view.proposed_at,
            confirmed_by: view.confirmed_by,
            confirm_reason: view.confirm_reason,
            withdrawn_by: view.withdrawn_by,
            status: view.status,
            detail: view.detail,
            closed_at: view.closed_at,
        }
    }
}

/// Propose a change
///
/// What lets money move, or lets more of it move, waits for the confirmation of another operator; everything else is done at once. Administrators
/// propose changes of operators, operators all others. A repeat of an open proposal by the same operator returns the first one.
#[utoipa::path(
    post, path = "/operator/v1/changes", tag = "changes", security(("session" = [])), request_body = NewChange,
    responses(
        (status = 201, description = "The change is proposed, or done if one operator suffices", body = ChangeDocument),
        (status = 409, description = "change_refused: it cannot be made now, and the detail says why", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "text_invalid, invalid_amount, invalid_currency, invalid_change", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn propose_change(
    State(app): State<Arc<App>>,
    logged_in: LoggedIn,
    Json(NewChange { change, reason }): Json<NewChange>,
) -> Result<(StatusCode, Json<ChangeDocument>), ApiError> {
    logged_in.require(&[change.proposed_by()])?;
    let change = change.check()?;
    if let Change::ActivateKillSwitch(KillSwitchTarget::Switch(name)) = &change {
        // A stop of a name that is misspelt would stop nothing.
        app.switch(name).map_err(|missing| Problem::unprocessable("invalid_change", missing))?;
    }
    let id = logged_in.ledger.propose_change(&change, &reason).await?;
    let document = read(&logged_in, &id).await?;
    tracing::info!(
        operator = logged_in.name(),
        change = %id,
        kind = change.kind(),
        status = document.status.as_str(),
        "an operator proposed or made a change"
    );
    Ok((StatusCode::CREATED, Json(document)))
}

/// Changes.
#[derive(Serialize, ToSchema)]
pub(crate) struct Changes {
    changes: Vec<ChangeDocument>,
}

/// Which changes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filter {
    /// Also those that are done or withdrawn, newest first.
    #[serde(default)]
    with_closed: bool,
    /// At most this many. Default 50.
    #[serde(default)]
    #[param(value_type = i64, minimum = 1, maximum = 1000)]
    limit: Limit,
}

/// List changes
///
/// Those that wait for another operator, oldest first.
#[utoipa::path(
    get, path = "/operator/v1/changes", tag = "changes", security(("session" = [])), params(Filter),
    responses((status = 200, description = "The changes", body = Changes)),
)]
pub(crate) async fn list_changes(
    logged_in: LoggedIn,
    Query(Filter { with_closed, limit }): Query<Filter>,
) -> Result<Json<Changes>, ApiError> {
    let filter = ChangeFilter { only_open: !with_closed, limit: limit.get() };
    let changes = logged_in.ledger.changes(filter).await?;
    Ok(Json(Changes { changes: changes.into_iter().map(ChangeDocument::from).collect() }))
}

/// Retrieve a change
#[utoipa::path(
    get, path = "/operator/v1/changes/{change_id}", tag = "changes", security(("session" = [])),
    params(("change_id" = String, Path, description = "Id of the change")),
    responses(
        (status = 200, description = "The change", body = ChangeDocument),
        (status = 404, description = "change_not_found", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retrieve_change(
    logged_in: LoggedIn,
    Path(id): Path<String>,
) -> Result<Json<ChangeDocument>, ApiError> {
    Ok(Json(read(&logged_in, &id).await?))
}

/// Confirm a change
///
/// Another operator than the one who proposed it, within 7 days; the change is done with it. An approver, or an administrator for a change of
/// an operator. A repeat has no further effect.
#[utoipa::path(
    post, path = "/operator/v1/changes/{change_id}/confirm", tag = "changes", security(("session" = [])),
    params(("change_id" = String, Path, description = "Id of the change")),
    request_body = Reason,
    responses(
        (status = 200, description = "The change is done", body = ChangeDocument),
        (status = 403, description = "same_operator: who proposed it cannot confirm it. role_missing, not_allowed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "change_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "change_refused: it is final, or cannot be made now", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "text_invalid", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn confirm_change(
    logged_in: LoggedIn,
    Path(id): Path<String>,
    Json(Reason { reason }): Json<Reason>,
) -> Result<Json<ChangeDocument>, ApiError> {
    // The database knows which of them this change takes.
    logged_in.require(&[OperatorRole::Approver, OperatorRole::Administrator])?;
    let confirmed = logged_in.ledger.confirm_change(&id, &reason).await;
    if let Err(ChangeError::SameOperator(_)) = &confirmed {
        tracing::warn!(operator = logged_in.name(), change = %id, "an operator tried to confirm the operator's own change");
    }
    confirmed?;
    tracing::info!(operator = logged_in.name(), change = %id, "an operator confirmed a change");
    Ok(Json(read(&logged_in, &id).await?))
}

/// Withdraw a change
///
/// A proposal that no other operator has confirmed; by any operator or approver, or by any administrator for a change of an operator. A repeat
/// has no further effect.
#[utoipa::path(
    post, path = "/operator/v1/changes/{change_id}/withdraw", tag = "changes", security(("session" = [])),
    params(("change_id" = String, Path, description = "Id of the change")),
    request_body = Reason,
    responses(
        (status = 200, description = "The change is withdrawn; nothing was changed", body = ChangeDocument),
        (status = 404, description = "change_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "change_refused: it is done", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "text_invalid", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn withdraw_change(
    logged_in: LoggedIn,
    Path(id): Path<String>,
    Json(Reason { reason }): Json<Reason>,
) -> Result<Json<ChangeDocument>, ApiError> {
    logged_in.require(&[OperatorRole::Operator, OperatorRole::Approver, OperatorRole::Administrator])?;
    logged_in.ledger.withdraw_change(&id, &reason).await?;
    tracing::info!(operator = logged_in.name(), change = %id, "an operator withdrew a change");
    Ok(Json(read(&logged_in, &id).await?))
}

async fn read(logged_in: &LoggedIn, id: &str) -> Result<ChangeDocument, ApiError> {
    let change = logged_in.ledger.change(id).await?;
    Ok(change.ok_or_else(|| change_not_found(id))?.into())
}
