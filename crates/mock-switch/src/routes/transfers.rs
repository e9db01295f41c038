//! Submitting a transfer and asking what became of it.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use service_kit::problem::{Json, Path, Problem};

use super::faults::{meet, suffer};
use super::input::OrderBody;
use super::{named, not_supported};
use crate::behaviour::{QueryFault, SubmitFault};
use crate::book::named::Named;
use crate::book::requests::Operation;
use crate::book::submit::{self, CANCELLED_BEFORE_RECEIPT, Submitted};
use crate::book::{self, Status, Transfer};
use crate::cut::cut;
use crate::error::Failure;
use crate::switch::{Shared, Switch};

/// The answer to an accepted submit: the transfer, and whether it was here before.
#[derive(Serialize)]
struct Accepted {
    #[serde(flatten)]
    transfer: Transfer,
    duplicate: bool,
}

/// The answer to a refused submit.
#[derive(Serialize)]
struct Refused<'a> {
    /// None from a switch without keys.
    reference: Option<&'a str>,
    status: Status,
    reason: &'a str,
    duplicate: bool,
}

/// `POST /v1/transfers`
pub(super) async fn submit(
    State(switch): State<Shared>,
    Json(body): Json<OrderBody>,
) -> Result<Response, Failure> {
    let order = body.check()?;
    let amount = Some(order.amount_minor);
    let (plan, fault) =
        meet(&switch, &order.reference, Operation::Submit, amount, |b| b.submit.as_ref()).await?;

    let mut refusal = None;
    match &fault {
        Some(SubmitFault::Http(fault)) => {
            if let Some(answer) = suffer(fault).await {
                return Ok(answer);
            }
        }
        Some(SubmitFault::RefuseUnrecorded) => {
            let keys = switch.settings.current().shape.keys;
            return Ok(refused(keys.then_some(&order.reference), &plan.reject_reason(), false));
        }
        Some(SubmitFault::Refuse) => refusal = Some(plan.reject_reason()),
        Some(SubmitFault::AcceptDropAnswer | SubmitFault::AcceptHangMs(_)) | None => {}
    }

    let submitted = submit::submit(&switch, &order, &plan, refusal).await?;
    switch.settle_now.notify_one();
    if plan.callback().early {
        switch.call_now.notify_one();
    }

    match fault {
        Some(SubmitFault::AcceptDropAnswer) => return Ok(cut()),
        Some(SubmitFault::AcceptHangMs(ms)) => tokio::time::sleep(Duration::from_millis(ms)).await,
        _ => {}
    }
    Ok(answer(&order.reference, submitted))
}

fn answer(reference: &str, submitted: Submitted) -> Response {
    match submitted {
        Submitted::Recorded { transfer, duplicate } if transfer.refused => {
            let reason = transfer.reason.as_deref().unwrap_or_default();
            refused(transfer.reference.as_deref(), reason, duplicate)
        }
        Submitted::Recorded { transfer, duplicate } => {
            (StatusCode::ACCEPTED, Json(Accepted { transfer, duplicate })).into_response()
        }
        Submitted::Tombstoned => refused(Some(reference), CANCELLED_BEFORE_RECEIPT, false),
        Submitted::Conflict => {
            let detail = "this reference means a transfer of another amount, currency or account";
            Problem::conflict("reference_conflict", detail).into_response()
        }
    }
}

fn refused(reference: Option<&str>, reason: &str, duplicate: bool) -> Response {
    let body = Refused { reference, status: Status::Rejected, reason, duplicate };
    (StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response()
}

/// `GET /v1/transfers/{reference}`
pub(super) async fn query_by_reference(
    State(switch): State<Shared>,
    Path(reference): Path<String>,
) -> Result<Response, Failure> {
    query(&switch, &named::by_reference(&switch, reference)?).await
}

/// `GET /v1/transfers/by-id/{transfer_id}`
pub(super) async fn query_by_id(
    State(switch): State<Shared>,
    Path(transfer_id): Path<String>,
) -> Result<Response, Failure> {
    query(&switch, &named::by_id(&switch, transfer_id).await?).await
}

async fn query(switch: &Switch, named: &Named) -> Result<Response, Failure> {
    let unknown = || match named.id {
        Some(_) => Problem::missing("unknown_transfer", "there is no transfer with this id"),
        None => Problem::missing("unknown_reference", "there is no transfer under this reference"),
    };
    let (_, fault) = meet(switch, &named.reference, Operation::Query, None, |b| b.query.as_ref()).await?;
    match &fault {
        Some(QueryFault::NotFound) => return Ok(unknown().into_response()),
        Some(QueryFault::Http(fault)) => {
            if let Some(answer) = suffer(fault).await {
                return Ok(answer);
            }
        }
        None => {}
    }
    let current = switch.settings.current();
    if !current.shape.query {
        return Err(not_supported("query_not_supported", "This switch cannot be queried").into());
    }
    let known = book::find(&switch.pool, named, current.remembered_since()).await?;
    Ok(known.map_or_else(|| unknown().into_response(), |transfer| Json(transfer).into_response()))
}
