//! Asking for settled money back.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use service_kit::problem::{Json, Path};

use super::faults::{meet, suffer};
use super::{input, named};
use crate::behaviour::RecallFault;
use crate::book::named::Named;
use crate::book::recall::{Answer, Verdict, recall as recall_in_book};
use crate::book::requests::Operation;
use crate::cut::cut;
use crate::error::Failure;
use crate::switch::{Shared, Switch};

/// `POST /v1/transfers/{reference}/recall`
pub(super) async fn by_reference(
    State(switch): State<Shared>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    recall(&switch, &named::by_reference(&switch, reference)?, &headers).await
}

/// `POST /v1/transfers/by-id/{transfer_id}/recall`
pub(super) async fn by_id(
    State(switch): State<Shared>,
    Path(transfer_id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    recall(&switch, &named::by_id(&switch, transfer_id).await?, &headers).await
}

async fn recall(switch: &Switch, named: &Named, headers: &HeaderMap) -> Result<Response, Failure> {
    let key = named::key(named, headers)?;
    let (plan, fault) =
        meet(switch, &named.reference, Operation::Recall, None, |b| b.recall.as_ref()).await?;
    let plain = |verdict| Ok(Json(Answer::plain(named, verdict)).into_response());
    let mut refusal = None;
    match &fault {
        Some(RecallFault::Http(fault)) => {
            if let Some(answer) = suffer(fault).await {
                return Ok(answer);
            }
        }
        Some(RecallFault::InProcess) => return plain(Verdict::InProcess),
        Some(RecallFault::CannotRecall) => return plain(Verdict::CannotRecall),
        Some(RecallFault::Refuse) => refusal = Some(plan.reject_reason()),
        Some(RecallFault::ApplyDropAnswer) | None => {}
    }

    let answer = recall_in_book(switch, named, key, refusal).await?;
    let answer = answer.map_err(|_| input::key_reused())?;
    match fault {
        Some(RecallFault::ApplyDropAnswer) => Ok(cut()),
        _ => Ok(Json(answer).into_response()),
    }
}
