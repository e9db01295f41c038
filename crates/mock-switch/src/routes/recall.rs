//! Recall requests.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use service_kit::problem::{Json, Path, Problem};

use super::faults::{apply_http_fault, next_fault};
use super::{input, selector};
use crate::behaviour::RecallFault;
use crate::book::recall::{RecallAnswer, RecallAnswerCode, RecallConflict, recall as recall_in_book};
use crate::book::requests::Operation;
use crate::book::selector::TransferSelector;
use crate::drop_connection::drop_connection;
use crate::error::RequestError;
use crate::state::{SharedSwitch, Switch};

/// `POST /v1/transfers/{reference}/recall`
pub(super) async fn by_reference(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, RequestError> {
    recall(&switch, &selector::by_reference(&switch, reference)?, &headers).await
}

/// `POST /v1/transfers/by-id/{transfer_id}/recall`
pub(super) async fn by_id(
    State(switch): State<SharedSwitch>,
    Path(transfer_id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, RequestError> {
    recall(&switch, &selector::by_id(&switch, transfer_id).await?, &headers).await
}

async fn recall(
    switch: &Switch,
    selector: &TransferSelector,
    headers: &HeaderMap,
) -> Result<Response, RequestError> {
    let key = selector::idempotency_key(selector, headers)?;
    let (plan, fault) =
        next_fault(switch, &selector.reference, Operation::Recall, None, |b| b.recall.as_ref()).await?;
    let without_reason = |code| Ok(Json(RecallAnswer::without_reason(selector, code)).into_response());
    let mut refusal = None;
    match &fault {
        Some(RecallFault::Http(fault)) => {
            if let Some(response) = apply_http_fault(fault).await {
                return Ok(response);
            }
        }
        Some(RecallFault::InProcess) => return without_reason(RecallAnswerCode::InProcess),
        Some(RecallFault::CannotRecall) => return without_reason(RecallAnswerCode::CannotRecall),
        Some(RecallFault::Refuse) => refusal = Some(plan.reject_reason()),
        Some(RecallFault::ApplyDropAnswer) | None => {}
    }

    let answer = recall_in_book(switch, selector, key, refusal).await?;
    let answer = answer.map_err(|conflict| match conflict {
        RecallConflict::KeyReused => input::key_reused(),
        RecallConflict::Repeated => {
            Problem::conflict("recall_repeated", "this transfer was recalled before; one recall is taken")
        }
    })?;
    match fault {
        Some(RecallFault::ApplyDropAnswer) => Ok(drop_connection()),
        _ => Ok(Json(answer).into_response()),
    }
}
