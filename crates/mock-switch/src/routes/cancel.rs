//! Asking to cancel.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use service_kit::problem::{Json, Path};

use super::faults::{meet, suffer};
use super::{input, named};
use crate::behaviour::CancelFault;
use crate::book::cancel::{Indefinite, Verdict, cancel as cancel_in_book};
use crate::book::named::Named;
use crate::book::requests::Operation;
use crate::cut::cut;
use crate::error::Failure;
use crate::switch::{Shared, Switch};

/// `POST /v1/transfers/{reference}/cancel`
pub(super) async fn by_reference(
    State(switch): State<Shared>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    cancel(&switch, &named::by_reference(&switch, reference)?, &headers).await
}

/// `POST /v1/transfers/by-id/{transfer_id}/cancel`
pub(super) async fn by_id(
    State(switch): State<Shared>,
    Path(transfer_id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    cancel(&switch, &named::by_id(&switch, transfer_id).await?, &headers).await
}

async fn cancel(switch: &Switch, named: &Named, headers: &HeaderMap) -> Result<Response, Failure> {
    let key = named::key(named, headers)?;
    let (plan, fault) =
        meet(switch, &named.reference, Operation::Cancel, None, |b| b.cancel.as_ref()).await?;
    let scripted = match &fault {
        Some(CancelFault::Http(fault)) => match suffer(fault).await {
            Some(answer) => return Ok(answer),
            None => None,
        },
        Some(CancelFault::Refuse) => {
            Some(Indefinite { verdict: Verdict::Refused, reason: Some(plan.reject_reason()) })
        }
        Some(CancelFault::InProcess) => Some(Indefinite::plain(Verdict::InProcess)),
        Some(CancelFault::CannotCancel) => Some(Indefinite::plain(Verdict::CannotCancel)),
        Some(CancelFault::NotFound) => Some(Indefinite::plain(Verdict::NotFound)),
        Some(CancelFault::ApplyDropAnswer) | None => None,
    };

    let answer = cancel_in_book(switch, named, key, scripted).await?;
    let answer = answer.map_err(|_| input::key_reused())?;
    match fault {
        Some(CancelFault::ApplyDropAnswer) => Ok(cut()),
        _ => Ok(Json(answer).into_response()),
    }
}
