//! Asking for settled money back.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use service_kit::problem::{Json, Path};

use super::faults::{meet, suffer};
use super::input;
use crate::behaviour::RecallFault;
use crate::book::recall::{Answer, Verdict, recall as recall_in_book};
use crate::book::requests::Operation;
use crate::cut::cut;
use crate::error::Failure;
use crate::switch::Shared;

/// `POST /v1/transfers/{reference}/recall`
pub(super) async fn recall(
    State(switch): State<Shared>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    input::reference(&reference)?;
    let key = input::idempotency_key(&headers)?;
    let (plan, fault) = meet(&switch, &reference, Operation::Recall, None, |b| b.recall.as_ref()).await?;
    let plain = |verdict| Ok(Json(Answer::plain(&reference, verdict)).into_response());
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

    let answer = recall_in_book(&switch, &reference, key, refusal).await?;
    let answer = answer.map_err(|_| input::key_reused())?;
    match fault {
        Some(RecallFault::ApplyDropAnswer) => Ok(cut()),
        _ => Ok(Json(answer).into_response()),
    }
}
