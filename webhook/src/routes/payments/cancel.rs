//! `POST /api/v1/payments/{payment_id}/cancel`: the customer's wish, a row in the payment's inbox.
//!
//! 202 says that the wish is stored, not that the payment will be cancelled: the switch decides.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use idempotency::Answer;
use idempotency::http::{self, Ticket};
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
use crate::idempotent::{self, Begun};
use crate::notify::notify;
use crate::routes::docs::ProblemDocument;

/// The wish is stored.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CancelRequested<'a> {
    /// The payment.
    payment_id: &'a str,
    /// Always `cancel_requested`. How it ends is seen with GET.
    status: &'a str,
    /// When it was stored.
    #[schema(value_type = String, format = DateTime)]
    requested_at: Timestamp,
}

/// Ask to cancel a payment
///
/// The switch is asked and its answer decides: a payment that settled there settles. A payment that stands before a
/// person (`needs_operator`) waits for what people decide; they see the wish. Asking again, under
/// any key, changes nothing.
#[utoipa::path(
    post, path = "/api/v1/payments/{payment_id}/cancel", tag = "payments", security(("api_key" = ["pay"])),
    params(
        ("payment_id" = String, Path, description = "From the acceptance"),
        ("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the caller, the same on every repeat", example = "cancel-4711"),
    ),
    responses(
        (status = 202, description = "Stored, now or before under this key", body = CancelRequested,
         headers(("Idempotent-Replay" = String, description = "true for a repeat"))),
        (status = 400, description = "idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "payment_not_found",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "payment_ended: there is nothing to cancel. transaction_in_progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "payload_mismatch: the key was used for another request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn cancel_payment(
    State(app): State<Arc<App>>,
    Payer { caller, writes }: Payer,
    ticket: Ticket,
    Path(id): Path<String>,
    RawBody(body): RawBody,
) -> Result<Response, ApiError> {
    let id = payment_id(&id)?;
    tracing::Span::current().record("payment.id", id.as_str());
    // Whose a payment is never changes, so this comes before the claim.
    if app.ledger.payment(&caller.tenant, &id).await?.is_none() {
        return Err(payment_not_found(id.as_str()).into());
    }

    let mut held = match idempotent::begin(&app, &ticket, &ticket.fingerprint(&body)).await? {
        Begun::Held(held) => writes.admit_held(held).await?,
        Begun::Replay(answer) => return Ok(http::write(answer, true)),
    };
    let message = match inbox::request_cancel(held.connection(), &id).await? {
        CancelRequestOutcome::Requested(message) => message,
        CancelRequestOutcome::Ended(end) => {
            held.give_back().await?;
            let detail = format!("the payment has ended: {end}");
            return Err(Problem::conflict("payment_ended", detail).into());
        }
    };
    let body = requested(&id, held.claimed_at())?;
    let answer = held.complete(Answer::new(StatusCode::ACCEPTED.as_u16(), body)).await?;
    if let Some(message) = message {
        notify(&app, &message).await;
    }
    Ok(answer)
}

fn requested(id: &PaymentId, requested_at: Timestamp) -> Result<Vec<u8>, ApiError> {
    let requested = CancelRequested { payment_id: id.as_str(), status: "cancel_requested", requested_at };
    Ok(serde_json::to_vec(&requested)?)
}
