//! Commands on a transfer: settle or reject it now, or send a callback, true or false.

use axum::extract::State;
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem};

use crate::book;
use crate::book::callbacks::{self, CallbackStatus, NewCallback, TransferEnd};
use crate::book::completion::{complete_now, return_now};
use crate::book::selector::TransferSelector;
use crate::error::RequestError;
use crate::routes::input;
use crate::state::{SharedSwitch, Switch};
use crate::status::TransferStatus;

/// `POST /admin/transfers/{reference}/settle`
pub(super) async fn settle(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
) -> Result<StatusCode, RequestError> {
    complete(&switch, &reference, TransferStatus::Settled, None).await
}

/// `POST /admin/transfers/{reference}/reject`
pub(super) async fn reject(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
) -> Result<StatusCode, RequestError> {
    complete(&switch, &reference, TransferStatus::Rejected, Some("rejected_by_admin".to_owned())).await
}

/// `POST /admin/transfers/{reference}/return`: the receiving bank returns the money of a settled transfer.
pub(super) async fn return_money(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
) -> Result<StatusCode, RequestError> {
    if !return_now(&switch, &reference, "returned_by_receiving_bank").await? {
        let detail = "this reference has no settled transfer whose money could be returned";
        return Err(Problem::conflict("not_settled", detail).into());
    }
    switch.callback_due.notify_one();
    Ok(StatusCode::NO_CONTENT)
}

async fn complete(
    switch: &Switch,
    reference: &str,
    status: TransferStatus,
    reason: Option<String>,
) -> Result<StatusCode, RequestError> {
    if !complete_now(switch, reference, status, reason).await? {
        let detail = "this reference has no pending transfer that could be completed";
        return Err(Problem::conflict("not_pending", detail).into());
    }
    switch.callback_due.notify_one();
    Ok(StatusCode::NO_CONTENT)
}

/// A callback to send. Absent fields are taken from the transfer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallbackRequest {
    #[serde(default)]
    status: Option<CallbackStatus>,
    #[serde(default)]
    amount_minor: Option<i64>,
    #[serde(default)]
    currency: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    reason_code: Option<String>,
    /// The id of an earlier callback makes two events with one id.
    #[serde(default)]
    event_id: Option<String>,
    #[serde(default)]
    delay_ms: u32,
}

/// The inserted callback.
#[derive(Serialize)]
pub(super) struct CallbackResponse {
    event_id: String,
}

/// `POST /admin/transfers/{reference}/callback`: also for an unknown reference.
pub(super) async fn callback(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
    Json(request): Json<CallbackRequest>,
) -> Result<(StatusCode, Json<CallbackResponse>), RequestError> {
    input::reference(&reference)?;
    let selector = TransferSelector::for_admin(&reference);
    let known = book::find(&switch.pool, &selector, Timestamp::UNIX_EPOCH).await?;
    let known = known.as_ref();
    let true_status = known.map(|transfer| match transfer.status {
        TransferStatus::Settled => CallbackStatus::Success,
        TransferStatus::Returned => CallbackStatus::Returned,
        TransferStatus::Pending | TransferStatus::Rejected | TransferStatus::Cancelled => {
            CallbackStatus::Failure
        }
    });
    let status = request.status.or(true_status);
    let amount = request.amount_minor.or(known.and_then(|transfer| transfer.amount_minor));
    let currency = request.currency.or(known.and_then(|transfer| transfer.currency.clone()));
    let (Some(status), Some(amount_minor), Some(currency)) = (status, amount, currency) else {
        let detail = "the switch has no transfer with this reference; send status, amount_minor and currency with the callback";
        return Err(Problem::bad_request("invalid_field", detail).into());
    };
    let end = TransferEnd {
        reference: &reference,
        status,
        amount_minor,
        currency: &currency,
        reason: request.reason.as_deref(),
        reason_code: request.reason_code.as_deref(),
    };
    let mut callback = NewCallback::new(&end, switch.settings.current().now())?;
    callback.delay_ms = i64::from(request.delay_ms);
    if let Some(event_id) = request.event_id {
        input::reference(&event_id)?;
        callback.event_id = event_id;
    }
    let mut tx = switch.pool.begin().await?;
    callbacks::insert(&mut tx, &[callback.clone()]).await?;
    tx.commit().await?;
    switch.callback_due.notify_one();
    Ok((StatusCode::ACCEPTED, Json(CallbackResponse { event_id: callback.event_id })))
}
