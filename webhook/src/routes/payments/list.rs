//! `GET /api/v1/payments`: payments of the tenant, filtered by state, age, account and end-to-end id.

use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use payment_ledger::reads::view::PaymentFilter;
use payment_protocol::PaymentState;
use payment_protocol::ids::{AccountId, PaymentId};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Problem, Query};
use utoipa::{IntoParams, ToSchema};

use super::order::is_end_to_end_id;
use super::view::{Payment, PaymentStatus};
use crate::app::App;
use crate::auth::Reader;
use crate::error::{ApiError, malformed_query};
use crate::paging::{next_cursor, page_limit};

/// Largest age of the filter: ten years.
const AGE_MAX_S: i64 = 315_360_000;

/// Filters of a list of payments; all must match.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListPaymentsQuery {
    /// Payments in this state.
    #[param(value_type = Option<PaymentStatus>)]
    state: Option<String>,
    /// Payments from this account.
    #[param(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._:-]+$")]
    source_account: Option<String>,
    /// Payments with this end-to-end id.
    #[param(min_length = 1, max_length = 35, pattern = "^[!-~]([ -~]*[!-~])?$")]
    end_to_end_id: Option<String>,
    /// Payments accepted at least so many seconds ago.
    #[param(minimum = 0, maximum = 315_360_000)]
    older_than_s: Option<i64>,
    /// Most payments on the page. Default 50.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<i64>,
    /// Cursor: `next` of the previous page.
    #[param(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._:-]+$")]
    after: Option<String>,
}

/// A page of payments, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PaymentList {
    payments: Vec<Payment>,
    /// Value of `after` for the next page; missing on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
}

/// List payments
///
/// Newest first.
#[utoipa::path(
    get, path = "/api/v1/payments", tag = "payments", security(("api_key" = ["read"])), params(ListPaymentsQuery),
    responses(
        (status = 200, description = "A page of payments", body = PaymentList),
        (status = 400, description = "malformed_query",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn list_payments(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Query(query): Query<ListPaymentsQuery>,
) -> Result<Json<PaymentList>, ApiError> {
    let filter = filter(query)?;
    let views = app.reads.payments(&caller.tenant, &filter).await?;
    let next = next_cursor(&views, filter.limit, |view| &view.payment_id);
    let payments = views.into_iter().map(Payment::of).collect::<Result<_, _>>()?;
    Ok(Json(PaymentList { payments, next }))
}

fn filter(query: ListPaymentsQuery) -> Result<PaymentFilter, Problem> {
    let state = query
        .state
        .map(|text| {
            PaymentState::parse(&text).ok_or_else(|| {
                let states: Vec<_> = PaymentState::ALL.iter().map(|state| state.as_str()).collect();
                malformed_query(format!("state must be one of {}", states.join(", ")))
            })
        })
        .transpose()?;
    let source_account = query
        .source_account
        .map(|text| {
            AccountId::new(text)
                .map_err(|error| malformed_query(format!("source_account is malformed: {error}")))
        })
        .transpose()?;
    let after = query
        .after
        .map(|text| {
            PaymentId::new(text)
                .map_err(|error| malformed_query(format!("after is not a cursor of this list: {error}")))
        })
        .transpose()?;
    if query.end_to_end_id.as_deref().is_some_and(|id| !is_end_to_end_id(id)) {
        return Err(malformed_query("end_to_end_id must be 1 to 35 printable ASCII characters".into()));
    }
    if query.older_than_s.is_some_and(|age_s| !(0..=AGE_MAX_S).contains(&age_s)) {
        return Err(malformed_query(format!("older_than_s must be 0 to {AGE_MAX_S}")));
    }
    let limit = page_limit(query.limit)?;
    Ok(PaymentFilter {
        state,
        source_account,
        end_to_end_id: query.end_to_end_id,
        older_than_s: query.older_than_s,
        after,
        limit,
    })
}
