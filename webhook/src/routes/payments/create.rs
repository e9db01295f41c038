//! `POST /api/v1/payments`: accepts a payment, once per key.
//!
//! 201 means that it is certain to happen, even while Temporal is down: workers pull accepted payments from the table.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::LOCATION;
use axum::response::Response;
use idempotency::Outcome;
use idempotency::http::{self, Ticket, Unanswered};
use payment_protocol::ids::PaymentId;
use service_kit::problem::Json;

use super::acceptance::{Acceptance, Asked};
use super::order::{Order, PaymentRequest};
use super::path_of;
use crate::app::App;
use crate::auth::Payer;
use crate::error::ApiError;
use crate::idempotent;
use crate::routes::docs::ProblemDocument;

/// Accept a payment
///
/// 201 means that it will happen, or end with a reason; ask for its state with GET. Repeat the request
/// with the same key as often as needed: one payment is made.
#[utoipa::path(
    post, path = "/api/v1/payments", tag = "payments", security(("api_key" = ["pay"])),
    params(("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the caller, the same on every repeat; \
            1 to 255 visible ASCII characters, bare or in double quotes", example = "order-4711")),
    request_body = PaymentRequest,
    responses(
        (status = 201, description = "Accepted now", body = Acceptance,
         headers(("Idempotent-Replay" = String, description = "false"), ("Location" = String, description = "The payment"))),
        (status = 200, description = "Accepted before under this key: the same bytes", body = Acceptance,
         headers(("Idempotent-Replay" = String, description = "true"), ("Location" = String, description = "The payment"))),
        (status = 400, description = "malformed_json, idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "transaction_in_progress: the first request is still being carried out",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "unsupported_media_type: send application/json",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "invalid_amount, invalid_currency, invalid_account, same_account, \
         invalid_end_to_end_id, no_route, over_limit, unknown_account, wrong_currency: no trace is left and the key is \
         unused. payload_mismatch: the key was used for another request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn create_payment(
    State(app): State<Arc<App>>,
    Payer { caller, writes }: Payer,
    ticket: Ticket,
    Json(request): Json<PaymentRequest>,
) -> Result<Response, ApiError> {
    let order = Order::read(request)?;
    let payment_id = PaymentId::derive(&caller.tenant, &caller.client, ticket.key().as_str());
    tracing::Span::current().record("payment.id", payment_id.as_str());

    let fingerprint = ticket.fingerprint(&order.canonical());
    let request_hash = *fingerprint.as_bytes();
    let asked = Asked { payment_id: payment_id.clone(), caller, writes, order, request_hash };
    let outcome = app.acceptances.carry_out(&ticket.scope(), &fingerprint, asked).await?;
    match outcome {
        Outcome::Answered(_) => {
            app.nudge.ask();
            count("accepted");
        }
        Outcome::Replayed(_) => count("replayed"),
        Outcome::InProgress | Outcome::Mismatch | Outcome::Refused(_) => {}
    }
    match http::answer(outcome) {
        Ok(response) => Ok(located(&payment_id, response)),
        Err(Unanswered::Refused(refusal)) => Err(idempotent::problem(&refusal).into()),
        Err(Unanswered::NotCarriedOut(problem)) => Err(problem.into()),
    }
}

fn located(payment_id: &PaymentId, mut response: Response) -> Response {
    // An id is visible ASCII, so the header is always made.
    if let Ok(location) = HeaderValue::from_str(&path_of(payment_id.as_str())) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn count(outcome: &'static str) {
    metrics::counter!("api_payment_requests_total", "outcome" => outcome).increment(1);
}
