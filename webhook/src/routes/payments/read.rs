//! `GET /api/v1/payments/{payment_id}`: where a payment stands, now or at its end.

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
use super::view::{Payment, Step, Told};
use crate::app::App;
use crate::auth::Reader;
use crate::error::{ApiError, payment_not_found};
use crate::routes::docs::ProblemDocument;

/// Lines of the timeline that are shown; a payment that loops at a dead switch has more.
const TIMELINE_MAX: i64 = 200;
/// Messages to the customer that are shown; there is one of a kind.
const NOTIFICATIONS_MAX: i64 = 50;
/// Between the first two looks of a waiting request. It doubles.
const LOOK_FIRST: Duration = Duration::from_millis(50);
/// Between two looks later on.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// How to ask.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Patience {
    /// Seconds to wait for the payment's end. A wait over the bound of the server is cut to it; when
    /// too many wait already, the answer comes at once.
    #[param(minimum = 0, maximum = 65_535)]
    wait: Option<u16>,
}

/// A payment with what happened to it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PaymentWithTimeline {
    #[serde(flatten)]
    payment: Payment,
    /// What happened, oldest first.
    timeline: Vec<Step>,
    /// What the customer was told, oldest first; a little later than it happened.
    notifications: Vec<Told>,
}

/// Ask for a payment
///
/// With `wait`, the answer comes when the payment has ended or the time is up, whichever is first; look
/// at `ended`.
#[utoipa::path(
    get, path = "/api/v1/payments/{payment_id}", tag = "payments", security(("api_key" = ["read"])),
    params(("payment_id" = String, Path, description = "From the acceptance"), Patience),
    responses(
        (status = 200, description = "The payment", body = PaymentWithTimeline),
        (status = 400, description = "malformed_query",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "payment_not_found; another tenant's payment is not found either",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn read_payment(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Path(id): Path<String>,
    Query(patience): Query<Patience>,
) -> Result<Json<PaymentWithTimeline>, ApiError> {
    let id = payment_id(&id)?;
    tracing::Span::current().record("payment.id", id.as_str());
    let mut view = find(&app, &caller, &id).await?;
    if let Some(wait_s) = patience.wait
        && view.state.end().is_none()
    {
        let wait = Duration::from_secs(wait_s.into()).min(app.wait_max);
        view = wait_for_end(&app, &caller, &id, view, wait).await?;
    }
    let timeline = app.ledger.timeline(&id, 0, TIMELINE_MAX).await?;
    let timeline = timeline.into_iter().map(Step::from).collect();
    let notifications = app.ledger.notifications(&id, NOTIFICATIONS_MAX).await?;
    let notifications = notifications.into_iter().map(Told::from).collect();
    Ok(Json(PaymentWithTimeline { payment: Payment::of(view)?, timeline, notifications }))
}

pub(super) async fn find(
    app: &App,
    caller: &api_keys::Caller,
    id: &PaymentId,
) -> Result<PaymentView, ApiError> {
    let found = app.ledger.payment(&caller.tenant, id).await?;
    found.ok_or_else(|| payment_not_found(id.as_str()).into())
}

/// Looks at the row until the payment has ended, the time is up or the process kill_switches. No connection is
/// held between two looks.
async fn wait_for_end(
    app: &App,
    caller: &api_keys::Caller,
    id: &PaymentId,
    mut view: PaymentView,
    wait: Duration,
) -> Result<PaymentView, ApiError> {
    let Ok(_permit) = app.waiters.try_acquire() else { return Ok(view) };
    let deadline = Instant::now() + wait;
    let mut pause = LOOK_FIRST;
    while view.state.end().is_none() && Instant::now() < deadline {
        let next = deadline.min(Instant::now() + pause);
        if app.stopping.run_until_cancelled(tokio::time::sleep_until(next)).await.is_none() {
            break;
        }
        view = find(app, caller, id).await?;
        pause = (pause * 2).min(LOOK_MAX);
    }
    Ok(view)
}
