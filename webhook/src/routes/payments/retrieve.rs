//! `GET /api/v1/payments/{payment_id}`: the state of a payment, now or once it has ended.

use openapi_kit::ProblemDocument;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use payment_ledger::access::api_keys;
use payment_ledger::reads::view::PaymentView;
use payment_protocol::ids::PaymentId;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Query};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::payment_id;
use super::view::{Notification, Payment, TimelineEntry};
use crate::app::App;
use crate::auth::Reader;
use crate::error::{ApiError, payment_not_found};
use crate::request_span::record_payment;

/// Upper bound of timeline entries in a response; a payment at an unavailable switch may have more.
const TIMELINE_MAX: i64 = 200;
/// Upper bound of notifications in a response; there is one of each kind.
const NOTIFICATIONS_MAX: i64 = 50;
/// First pause between two queries of a waiting request; it doubles.
const POLL_PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Longest pause between two queries of a waiting request.
const POLL_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Query of one payment.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RetrievePaymentQuery {
    /// Seconds to wait for the payment's end. A longer wait than the server allows is reduced; if too many requests wait
    /// already, the response is returned at once.
    #[param(minimum = 0, maximum = 65_535)]
    wait: Option<u16>,
}

/// A payment with its timeline and notifications.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PaymentWithTimeline {
    #[serde(flatten)]
    payment: Payment,
    /// State changes and their details, oldest first.
    timeline: Vec<TimelineEntry>,
    /// Messages to the customer, oldest first.
    notifications: Vec<Notification>,
}

/// Retrieve a payment
///
/// With `wait`, the response is returned once the payment has ended or the time has elapsed, whichever is first; check `ended`.
#[utoipa::path(
    get, path = "/api/v1/payments/{payment_id}", tag = "payments", security(("api_key" = ["read"])),
    params(("payment_id" = String, Path, description = "Id of the payment"), RetrievePaymentQuery),
    responses(
        (status = 200, description = "The payment", body = PaymentWithTimeline),
        (status = 400, description = "malformed_query",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "payment_not_found: no payment with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retrieve_payment(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Path(id): Path<String>,
    Query(query): Query<RetrievePaymentQuery>,
) -> Result<Json<PaymentWithTimeline>, ApiError> {
    let id = payment_id(&id)?;
    record_payment(id.as_str());
    let mut view = find(&app, &caller, &id).await?;
    if let Some(wait_s) = query.wait
        && view.state.end().is_none()
    {
        let wait = Duration::from_secs(wait_s.into()).min(app.wait_max);
        view = wait_for_end(&app, &caller, &id, view, wait).await?;
    }
    let timeline = app.reads.timeline(&id, 0, TIMELINE_MAX).await?;
    let timeline = timeline.into_iter().map(TimelineEntry::from).collect();
    let notifications = app.reads.notifications(&id, NOTIFICATIONS_MAX).await?;
    let notifications = notifications.into_iter().map(Notification::from).collect();
    Ok(Json(PaymentWithTimeline { payment: Payment::of(view)?, timeline, notifications }))
}

/// The payment, if it belongs to the caller's tenant.
pub(super) async fn find(
    app: &App,
    caller: &api_keys::Caller,
    id: &PaymentId,
) -> Result<PaymentView, ApiError> {
    let view = app.reads.payment(&caller.tenant, id).await?;
    view.ok_or_else(|| payment_not_found(id.as_str()).into())
}

/// Polls the row until the payment has ended, the time has elapsed or the process stops. No connection is held between two
/// queries.
async fn wait_for_end(
    app: &App,
    caller: &api_keys::Caller,
    id: &PaymentId,
    mut view: PaymentView,
    wait: Duration,
) -> Result<PaymentView, ApiError> {
    let Ok(_permit) = app.waiters.try_acquire() else { return Ok(view) };
    let deadline = Instant::now() + wait;
    let mut pause = POLL_PAUSE_FIRST;
    while view.state.end().is_none() && Instant::now() < deadline {
        let next = deadline.min(Instant::now() + pause);
        if app.stopping.run_until_cancelled(tokio::time::sleep_until(next)).await.is_none() {
            break;
        }
        view = find(app, caller, id).await?;
        pause = (pause * 2).min(POLL_PAUSE_MAX);
    }
    Ok(view)
}
