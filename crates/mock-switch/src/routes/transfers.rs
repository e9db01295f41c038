//! Submits and queries of transfers.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use service_kit::problem::{Json, Path, Problem};

use super::faults::{apply_http_fault, next_fault};
use super::input::SubmitBody;
use super::{not_supported, selector};
use crate::behaviour::{QueryFault, SubmitFault};
use crate::book::requests::{self, Operation};
use crate::book::selector::TransferSelector;
use crate::book::submit::{self, CANCELLED_BEFORE_RECEIPT, DUPLICATE_REFERENCE, SubmitOutcome};
use crate::book::{self, Transfer};
use crate::drop_connection::drop_connection;
use crate::error::RequestError;
use crate::settings::{Coded, CurrentSettings, RejectCodes};
use crate::state::{SharedSwitch, Switch};
use crate::status::TransferStatus;

/// Response to an accepted submit.
#[derive(Serialize)]
struct AcceptedBody {
    #[serde(flatten)]
    transfer: Coded<Transfer>,
    duplicate: bool,
}

/// Response to a refused submit.
#[derive(Serialize)]
struct RefusedBody<'a> {
    /// `None` from a switch without keys.
    reference: Option<&'a str>,
    status: TransferStatus,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_code: Option<&'static str>,
    duplicate: bool,
}

/// `POST /v1/transfers`
pub(super) async fn submit(
    State(switch): State<SharedSwitch>,
    Json(body): Json<SubmitBody>,
) -> Result<Response, RequestError> {
    let order = body.check()?;
    if !switch.settings.current().shape.id_pattern.accepts(&order.reference) {
        let detail = "the reference does not have the pattern of this rail; send an id in its pattern";
        return Err(Problem::bad_request("malformed_reference", detail).into());
    }
    let amount = Some(order.amount_minor);
    let (plan, fault) =
        next_fault(&switch, &order.reference, Operation::Submit, amount, |b| b.submit.as_ref()).await?;

    let mut refusal = None;
    match &fault {
        Some(SubmitFault::Http(fault)) => {
            if let Some(response) = apply_http_fault(fault).await {
                return Ok(response);
            }
        }
        Some(SubmitFault::RefuseUnrecorded) => {
            let shape = switch.settings.current().shape;
            // Nothing is decided about the reference, so the reject has no code.
            let reference = shape.keys.then_some(order.reference.as_str());
            return Ok(refused(RejectCodes::None, reference, &plan.reject_reason(), false));
        }
        Some(SubmitFault::Refuse) => refusal = Some(plan.reject_reason()),
        Some(SubmitFault::AcceptDropAnswer | SubmitFault::AcceptHangMs(_)) | None => {}
    }

    let outcome = submit::submit(&switch, &order, &plan, refusal).await?;
    switch.completion_due.notify_one();
    if plan.callback().early {
        switch.callback_due.notify_one();
    }

    match fault {
        Some(SubmitFault::AcceptDropAnswer) => return Ok(drop_connection()),
        Some(SubmitFault::AcceptHangMs(ms)) => tokio::time::sleep(Duration::from_millis(ms)).await,
        _ => {}
    }
    Ok(response(switch.settings.current().shape.reject_codes, &order.reference, outcome))
}

fn response(codes: RejectCodes, reference: &str, outcome: SubmitOutcome) -> Response {
    match outcome {
        SubmitOutcome::Recorded { transfer, duplicate } if transfer.refused => {
            let reason = transfer.reason.as_deref().unwrap_or_default();
            refused(codes, transfer.reference.as_deref(), reason, duplicate)
        }
        SubmitOutcome::Recorded { transfer, duplicate } => {
            let transfer = transfer.coded(codes);
            (StatusCode::ACCEPTED, Json(AcceptedBody { transfer, duplicate })).into_response()
        }
        SubmitOutcome::Tombstoned => refused(codes, Some(reference), CANCELLED_BEFORE_RECEIPT, false),
        SubmitOutcome::Duplicate => refused(codes, Some(reference), DUPLICATE_REFERENCE, true),
        SubmitOutcome::Conflict => {
            let detail = "this reference belongs to a transfer with another amount, currency or account; use a new reference";
            Problem::conflict("reference_conflict", detail).into_response()
        }
    }
}

fn refused(codes: RejectCodes, reference: Option<&str>, reason: &str, duplicate: bool) -> Response {
    let reason_code = codes.code(reason);
    let body = RefusedBody { reference, status: TransferStatus::Rejected, reason, reason_code, duplicate };
    (StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response()
}

/// `GET /v1/transfers/{reference}`
pub(super) async fn query_by_reference(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
) -> Result<Response, RequestError> {
    query(&switch, &selector::by_reference(&switch, reference)?).await
}

/// `GET /v1/transfers/by-id/{transfer_id}`
pub(super) async fn query_by_id(
    State(switch): State<SharedSwitch>,
    Path(transfer_id): Path<String>,
) -> Result<Response, RequestError> {
    query(&switch, &selector::by_id(&switch, transfer_id).await?).await
}

async fn query(switch: &Switch, selector: &TransferSelector) -> Result<Response, RequestError> {
    let unknown = || match selector.id {
        Some(_) => {
            Problem::missing("unknown_transfer", "the switch has no transfer with this id; check the id")
        }
        None => Problem::missing(
            "unknown_reference",
            "the switch has no transfer with this reference; check the reference",
        ),
    };
    let (_, fault) =
        next_fault(switch, &selector.reference, Operation::Query, None, |b| b.query.as_ref()).await?;
    match &fault {
        Some(QueryFault::NotFound) => return Ok(unknown().into_response()),
        Some(QueryFault::Http(fault)) => {
            if let Some(response) = apply_http_fault(fault).await {
                return Ok(response);
            }
        }
        None => {}
    }
    let current = switch.settings.current();
    if !current.shape.query {
        return Err(not_supported("query_not_supported", "This switch has no query").into());
    }
    let known = book::find(&switch.pool, selector, current.remembered_since()).await?;
    if let Some(refusal) = refused_query(switch, selector, &current, known.as_ref()).await? {
        return Err(refusal.into());
    }
    let codes = current.shape.reject_codes;
    Ok(known
        .map_or_else(|| unknown().into_response(), |transfer| Json(transfer.coded(codes)).into_response()))
}

/// Why the switch answers no query of the transfer now: too early, or too many.
async fn refused_query(
    switch: &Switch,
    selector: &TransferSelector,
    current: &CurrentSettings,
    known: Option<&Transfer>,
) -> Result<Option<Problem>, RequestError> {
    let shape = current.shape;
    let age_ms = known.map(|transfer| current.now().duration_since(transfer.received_at).as_millis());
    if age_ms.is_some_and(|age_ms| age_ms < i128::from(shape.query_after_ms)) {
        let detail =
            format!("query the transfer {} ms after its receipt at the earliest", shape.query_after_ms);
        return Ok(Some(Problem::conflict("query_too_early", detail)));
    }
    if shape.queries_max > 0 {
        let queries = requests::received(&switch.pool, &selector.reference, Operation::Query).await?;
        if queries > i64::from(shape.queries_max) {
            let detail = format!("the switch answers {} queries of one transfer", shape.queries_max);
            return Ok(Some(Problem::conflict("queries_spent", detail)));
        }
    }
    Ok(None)
}
