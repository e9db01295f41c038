//! Asking to cancel.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use service_kit::problem::{Json, Path};

use super::faults::{meet, suffer};
use super::input;
use crate::behaviour::CancelFault;
use crate::book;
use crate::book::cancel::{Verdict, cancel as cancel_in_book, indefinite};
use crate::book::requests::Operation;
use crate::cut::cut;
use crate::error::Failure;
use crate::switch::Shared;

/// `POST /v1/transfers/{reference}/cancel`
pub(super) async fn cancel(
    State(switch): State<Shared>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    input::reference(&reference)?;
    let key = input::idempotency_key(&headers)?;
    let (plan, fault) = meet(&switch, &reference, Operation::Cancel, None, |b| b.cancel.as_ref()).await?;
    let verdict = match &fault {
        Some(CancelFault::Http(fault)) => match suffer(fault).await {
            Some(answer) => return Ok(answer),
            None => None,
        },
        Some(CancelFault::Refuse) => Some(Verdict::Refused),
        Some(CancelFault::InProcess) => Some(Verdict::InProcess),
        Some(CancelFault::CannotCancel) => Some(Verdict::CannotCancel),
        Some(CancelFault::NotFound) => Some(Verdict::NotFound),
        Some(CancelFault::ApplyDropAnswer) | None => None,
    };

    if let Some(verdict) = verdict {
        let since = switch.settings.current().remembered_since();
        let known = match verdict {
            // It claims to know nothing.
            Verdict::NotFound => None,
            _ => book::find(&switch.pool, &reference, since).await?,
        };
        let mut answer = indefinite(&reference, verdict, known);
        answer.reason = (verdict == Verdict::Refused).then(|| plan.reject_reason());
        return Ok(Json(answer).into_response());
    }
    let answer = cancel_in_book(&switch, &reference, key).await?;
    let answer = answer.map_err(|_| input::key_reused())?;
    match fault {
        Some(CancelFault::ApplyDropAnswer) => Ok(cut()),
        _ => Ok(Json(answer).into_response()),
    }
}
