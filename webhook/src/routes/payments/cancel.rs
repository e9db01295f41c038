//! `POST /api/v1/payments/{payment_id}/cancel`: stores the customer's cancel request in the payment's inbox.
//!
//! 202 means that the request is stored, not that the payment will be cancelled: the switch decides.

use crash_point::crash_point;
use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use idempotency::StoredResponse;
use idempotency::http::{self, IdempotencyContext};
use jiff::Timestamp;
use payment_ledger::switch::inbox::{self, CancelRequestOutcome};
use payment_protocol::ids::PaymentId;
use serde::Serialize;
use service_kit::problem::{Path, Problem};
use utoipa::ToSchema;

use super::payment_id;
use crate::app::App;
use crate::auth::Payer;
use crate::error::{ApiError, payment_not_found};
use crate::extract::RawBody;
use crate::idempotent::{self, RequestClaimOutcome};
use crate::request_span::{link_to_payment, record_payment};
use crate::workflow_delivery::deliver_to_workflow;

/// The cancel request is stored.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CancelRequested<'a> {
    /// Id of the payment.
    payment_id: &'a str,
    /// Always `cancel_requested`. Retrieve the payment for its final state.
    status: &'a str,
    /// When the request was stored.
    #[schema(value_type = String, format = DateTime)]
    requested_at: Timestamp,
}

/// Cancel a payment
///
/// Stores a cancel request, which is sent to the switch. The switch decides: a payment that has settled there becomes `settled`. A
/// payment in the state `needs_operator` waits for the decision of an operator, who sees the request. Further cancel requests
/// change nothing.
#[utoipa::path(
    post, path = "/api/v1/payments/{payment_id}/cancel", tag = "payments", security(("api_key" = ["pay"])),
    params(
        ("payment_id" = String, Path, description = "Id of the payment"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the client; the same on every retry", example = "cancel-4711"),
    ),
    responses(
        (status = 202, description = "The cancel request is stored, now or by an earlier request with this key", body = CancelRequested,
         headers(("Idempotent-Replay" = String, description = "true for a replay"))),
        (status = 400, description = "idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "payment_not_found: no payment with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "payment_ended: the payment is in a final state. transaction_in_progress: the first request with this key is still in progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "payload_mismatch: the key was used for a different request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn cancel_payment(
    State(app): State<Arc<App>>,
    Payer { caller, writes }: Payer,
    context: IdempotencyContext,
    Path(id): Path<String>,
    RawBody(body): RawBody,
) -> Result<Response, ApiError> {
    let id = payment_id(&id)?;
    record_payment(id.as_str());
    // The owner of a payment never changes, so this check comes before the claim.
    if app.ledger.payment(&caller.tenant, &id).await?.is_none() {
        return Err(payment_not_found(id.as_str()).into());
    }
    link_to_payment(&app.ledger, &id).await;

    let mut claimed = match idempotent::claim(&app, &context, &context.fingerprint(&body)).await? {
        RequestClaimOutcome::Claimed(claimed) => writes.admit_claimed(claimed).await?,
        RequestClaimOutcome::Replay(response) => return Ok(http::json_response(response, true)),
    };
    let message = match inbox::request_cancel(claimed.connection(), &id).await? {
        CancelRequestOutcome::Requested(message) => message,
        CancelRequestOutcome::Ended(end) => {
            claimed.release().await?;
            let detail = format!("payment {id} has ended in the state {end} and cannot be cancelled");
            return Err(Problem::conflict("payment_ended", detail).into());
        }
    };
    let body = response_body(&id, claimed.claimed_at())?;
    let response = claimed.complete(StoredResponse::new(StatusCode::ACCEPTED.as_u16(), body)).await?;
    crash_point("after storing a cancel");
    if let Some(message) = message {
        deliver_to_workflow(&app, &message).await;
    }
    Ok(response)
}

fn response_body(id: &PaymentId, requested_at: Timestamp) -> Result<Vec<u8>, ApiError> {
    let requested = CancelRequested { payment_id: id.as_str(), status: "cancel_requested", requested_at };
    Ok(serde_json::to_vec(&requested)?)
}
