//! `GET /api/v1/payments`: payments of the tenant by state, age, account and reference.

use std::sync::Arc;

use axum::extract::State;
use payment_ledger::reads::view::PaymentFilter;
use payment_protocol::PaymentState;
use payment_protocol::ids::{AccountId, PaymentId};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Problem, Query};
use utoipa::{IntoParams, ToSchema};

use super::order::is_end_to_end_id;
use super::view::Payment;
use crate::app::App;
use crate::auth::Reader;
use crate::error::ApiError;
use crate::routes::docs::ProblemDocument;

/// Payments on a page when nothing is said.
const LIMIT_DEFAULT: i64 = 50;
/// Payments on a page at most.
const LIMIT_MAX: i64 = 200;
/// Oldest age that can be asked for: ten years.
const AGE_MAX_S: i64 = 315_360_000;

/// Which payments. All conditions must hold.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only in this state.
    #[param(
        pattern = "^(accepted|started|reserved|submitted|confirmed|cancelling|needs_operator|settled|rejected|failed|timed_out|cancelled)$"
    )]
    state: Option<String>,
    /// Only from this account.
    #[param(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._:-]+$")]
    source_account: Option<String>,
    /// Only with this end-to-end id.
    #[param(min_length = 1, max_length = 35, pattern = "^[!-~]([ -~]*[!-~])?$")]
    end_to_end_id: Option<String>,
    /// Only accepted this many seconds ago or earlier.
    #[param(minimum = 0, maximum = 315_360_000)]
    older_than_s: Option<i64>,
    /// At most so many. Default 50.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<i64>,
    /// Only after this payment in the list: `next` of the page before.
    #[param(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._:-]+$")]
    after: Option<String>,
}

/// A page of payments, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page {
    payments: Vec<Payment>,
    /// Value of `after` for the next page; missing on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List payments
///
/// Newest first.
#[utoipa::path(
    get, path = "/api/v1/payments", tag = "payments", security(("api_key" = ["read"])), params(Which),
    responses(
        (status = 200, description = "A page", body = Page),
        (status = 400, description = "malformed_query",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn list_payments(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Query(which): Query<Which>,
) -> Result<Json<Page>, ApiError> {
    let filter = filter(which)?;
    let views = app.ledger.payments(&caller.tenant, &filter).await?;
    let full = i64::try_from(views.len()).is_ok_and(|count| count == filter.limit);
    let next = if full { views.last().map(|view| view.payment_id.clone()) } else { None };
    let payments = views.into_iter().map(Payment::of).collect::<Result<_, _>>()?;
    Ok(Json(Page { payments, next }))
}

fn filter(which: Which) -> Result<PaymentFilter, Problem> {
    let refused = |detail: String| Problem::bad_request("malformed_query", detail);
    let state = which
        .state
        .map(|text| {
            PaymentState::parse(&text).ok_or_else(|| {
                let states: Vec<_> = PaymentState::ALL.iter().map(|state| state.as_str()).collect();
                refused(format!("state must be one of {}", states.join(", ")))
            })
        })
        .transpose()?;
    let source_account = which
        .source_account
        .map(|text| AccountId::new(text).map_err(|error| refused(format!("source_account: {error}"))))
        .transpose()?;
    let after = which
        .after
        .map(|text| PaymentId::new(text).map_err(|error| refused(format!("after: {error}"))))
        .transpose()?;
    if which.end_to_end_id.as_deref().is_some_and(|id| !is_end_to_end_id(id)) {
        return Err(refused("end_to_end_id is not one that a payment can have".into()));
    }
    if which.older_than_s.is_some_and(|age_s| !(0..=AGE_MAX_S).contains(&age_s)) {
        return Err(refused(format!("older_than_s must be from 0 to {AGE_MAX_S}")));
    }
    let limit = which.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(refused(format!("limit must be from 1 to {LIMIT_MAX}")));
    }
    Ok(PaymentFilter {
        state,
        source_account,
        end_to_end_id: which.end_to_end_id,
        older_than_s: which.older_than_s,
        after,
        limit,
    })
}
