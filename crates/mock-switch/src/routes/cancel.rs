//! Cancel requests.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use service_kit::problem::{Json, Path};

use super::faults::{apply_http_fault, next_fault};
use super::{input, selector};
use crate::behaviour::CancelFault;
use crate::book::cancel::{CancelAnswerCode, IndefiniteAnswer, cancel as cancel_in_book};
use crate::book::requests::Operation;
use crate::book::selector::TransferSelector;
use crate::drop_connection::drop_connection;
use crate::error::RequestError;
use crate::state::{SharedSwitch, Switch};

/// `POST /v1/transfers/{reference}/cancel`
pub(super) async fn by_reference(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, RequestError> {
    cancel(&switch, &selector::by_reference(&switch, reference)?, &headers).await
}

/// `POST /v1/transfers/by-id/{transfer_id}/cancel`
pub(super) async fn by_id(
    State(switch): State<SharedSwitch>,
    Path(transfer_id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, RequestError> {
    cancel(&switch, &selector::by_id(&switch, transfer_id).await?, &headers).await
}

async fn cancel(
    switch: &Switch,
    selector: &TransferSelector,
    headers: &HeaderMap,
) -> Result<Response, RequestError> {
    let key = selector::idempotency_key(selector, headers)?;
    let (plan, fault) =
        next_fault(switch, &selector.reference, Operation::Cancel, None, |b| b.cancel.as_ref()).await?;
    let scripted = match &fault {
        Some(CancelFault::Http(fault)) => match apply_http_fault(fault).await {
            Some(response) => return Ok(response),
            None => None,
        },
        Some(CancelFault::Refuse) => {
            Some(IndefiniteAnswer { code: CancelAnswerCode::Refused, reason: Some(plan.reject_reason()) })
        }
        Some(CancelFault::InProcess) => Some(IndefiniteAnswer::without_reason(CancelAnswerCode::InProcess)),
        Some(CancelFault::CannotCancel) => {
            Some(IndefiniteAnswer::without_reason(CancelAnswerCode::CannotCancel))
        }
        Some(CancelFault::NotFound) => Some(IndefiniteAnswer::without_reason(CancelAnswerCode::NotFound)),
        Some(CancelFault::ApplyDropAnswer) | None => None,
    };

    let answer = cancel_in_book(switch, selector, key, scripted).await?;
    let answer = answer.map_err(|_| input::key_reused())?;
    match fault {
        Some(CancelFault::ApplyDropAnswer) => Ok(drop_connection()),
        _ => Ok(Json(answer).into_response()),
    }
}
