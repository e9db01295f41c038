//! Commands on a transfer: settle or reject it now, or send a callback, true or false.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem};

use crate::behaviour::Posting;
use crate::book;
use crate::book::callbacks::{self, CallbackStatus, NewCallback, PostingReport, TransferEnd};
use crate::book::completion::{ReturnOutcome, complete_now, return_now};
use crate::book::recall::{LaterAnswer, answer_later};
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

/// `POST /admin/transfers/{reference}/forget`: the switch fails over to a copy without the transfer, which still settles.
pub(super) async fn forget(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
) -> Result<StatusCode, RequestError> {
    if !book::forget_now(&switch, &reference).await? {
        let detail = "this reference has no transfer that clients find";
        return Err(Problem::conflict("not_known", detail).into());
    }
    Ok(StatusCode::NO_CONTENT)
}

/// A return by a message of its own; without an id, the return of the whole transfer.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReturnRequest {
    return_id: Option<String>,
    /// Absent: all that has not come back yet.
    amount_minor: Option<i64>,
}

/// `POST /admin/transfers/{reference}/return`: the receiving bank returns the money of a settled transfer; with a body, by a message of its
/// own, and perhaps in part.
pub(super) async fn return_money(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
    body: Bytes,
) -> Result<StatusCode, RequestError> {
    let request: ReturnRequest = if body.is_empty() {
        ReturnRequest::default()
    } else {
        serde_json::from_slice(&body)
            .map_err(|error| Problem::bad_request("invalid_field", error.to_string()))?
    };
    let part = request.return_id.as_deref().map(|id| (id, request.amount_minor));
    if part.is_some_and(|(_, amount_minor)| amount_minor.is_some_and(|minor| minor <= 0)) {
        return Err(Problem::bad_request("invalid_field", "amount_minor must be above zero").into());
    }
    match return_now(&switch, &reference, "returned_by_receiving_bank", part).await? {
        ReturnOutcome::Returned => {
            switch.callback_due.notify_one();
            Ok(StatusCode::NO_CONTENT)
        }
        ReturnOutcome::NotSettled => {
            let detail = "this reference has no settled transfer whose money could be returned";
            Err(Problem::conflict("not_settled", detail).into())
        }
        ReturnOutcome::TooMuch => {
            let detail = "amount_minor is more than has not come back of the transfer yet";
            Err(Problem::bad_request("invalid_field", detail).into())
        }
        ReturnOutcome::IdUsed => {
            Err(Problem::bad_request("invalid_field", "return_id was used before; send another one").into())
        }
    }
}

/// A report of where the money of a settled transfer is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PostingRequest {
    posting: Posting,
}

/// `POST /admin/transfers/{reference}/posting`: the switch reports where the money of a settled transfer is.
pub(super) async fn posting(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
    Json(request): Json<PostingRequest>,
) -> Result<StatusCode, RequestError> {
    let selector = TransferSelector::for_admin(&reference);
    let known = book::find(&switch.pool, &selector, Timestamp::UNIX_EPOCH).await?;
    let settled = known.as_ref().filter(|transfer| transfer.status == TransferStatus::Settled);
    let amount = settled.and_then(|transfer| Some((transfer.amount_minor?, transfer.currency.as_deref()?)));
    let Some((amount_minor, currency)) = amount else {
        return Err(Problem::conflict("not_settled", "this reference has no settled transfer").into());
    };
    let report = PostingReport { reference: &reference, posting: request.posting, amount_minor, currency };
    let callback = NewCallback::of_posting(&report, switch.settings.current().now())?;
    callbacks::insert(&mut *switch.pool.acquire().await?, &[callback]).await?;
    switch.callback_due.notify_one();
    Ok(StatusCode::NO_CONTENT)
}

/// The receiving bank's answer to a recall.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecallAnswerRequest {
    answer: LaterAnswer,
    #[serde(default)]
    reason: Option<String>,
}

/// `POST /admin/transfers/{reference}/recall-answer`: the receiving bank answers a recall. A promise returns nothing by itself.
pub(super) async fn recall_answer(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
    Json(request): Json<RecallAnswerRequest>,
) -> Result<StatusCode, RequestError> {
    if let Some(reason) = &request.reason {
        input::text("reason", reason)?;
    }
    if !answer_later(&switch, &reference, request.answer, request.reason.as_deref()).await? {
        return Err(Problem::conflict("not_recalled", "no recall of this reference was received").into());
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
        posting: None,
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
