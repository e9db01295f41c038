//! `POST /api/v1/payments`: accepts a payment, once per key.
//!
//! An accepted payment is executed even if Temporal is unavailable now: payment workers start accepted payments from the table.

use crash_point::crash_point;
use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::LOCATION;
use axum::response::Response;
use idempotency::RequestOutcome;
use idempotency::http::{self, IdempotencyContext, ResponseError};
use payment_protocol::ids::PaymentId;
use service_kit::problem::Json;
use trace_kit::{SpanKind, TraceParent, span};

use super::acceptance::{Acceptance, AcceptanceRequest};
use super::order::{Order, PaymentRequest};
use super::path_of;
use crate::app::App;
use crate::auth::Payer;
use crate::error::ApiError;
use crate::idempotent;
use crate::request_span::{link_to_payment, record_payment};

/// Create a payment
///
/// 201 means that the payment is accepted and will reach a final state; retrieve or stream it to follow its state. Retries with the
/// same key create no further payment.
#[utoipa::path(
    post, path = "/api/v1/payments", tag = "payments", security(("api_key" = ["pay"])),
    params(("Idempotency-Key" = String, Header, min_length = 1, max_length = 255,
         pattern = r"^[!#-\[\]-~]+$", description = "Chosen by the client; the same on every retry; \
            1 to 255 visible ASCII characters without quotes and backslashes, bare or in double quotes", example = "order-4711")),
    request_body = PaymentRequest,
    responses(
        (status = 201, description = "The payment was accepted", body = Acceptance,
         headers(("Idempotent-Replay" = String, description = "false"), ("Location" = String, description = "Path of the payment"))),
        (status = 200, description = "The payment was accepted by an earlier request with this key; the body is the same, byte for byte", body = Acceptance,
         headers(("Idempotent-Replay" = String, description = "true"), ("Location" = String, description = "Path of the payment"))),
        (status = 400, description = "malformed_json, idempotency_key_missing, idempotency_key_malformed",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "transaction_in_progress: the first request with this key is still in progress",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "unsupported_media_type: send application/json",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "invalid_amount, invalid_currency, invalid_account, same_account, \
         invalid_end_to_end_id, no_route, over_limit, unknown_account, wrong_currency: nothing was stored and the key is \
         unused. payload_mismatch: the key was used for a different request",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn create_payment(
    State(app): State<Arc<App>>,
    Payer { caller, writes }: Payer,
    context: IdempotencyContext,
    Json(request): Json<PaymentRequest>,
) -> Result<Response, ApiError> {
    let order = Order::parse(request)?;
    let payment_id = PaymentId::derive(&caller.tenant, &caller.client, context.key().as_str());
    record_payment(payment_id.as_str());

    let fingerprint = context.fingerprint(&order.canonical());
    let request_hash = *fingerprint.as_bytes();
    let trace_parent = TraceParent::current();
    let request = AcceptanceRequest {
        payment_id: payment_id.clone(),
        caller,
        writes,
        order,
        request_hash,
        trace_parent,
    };
    idempotent::record_key(&context);
    let acceptance = span(SpanKind::Internal, "accept payment").start();
    crash_point("before accepting a payment");
    let outcome = acceptance.run(app.acceptances.execute(&context.scope(), &fingerprint, request)).await?;
    crash_point("after accepting a payment");
    drop(acceptance);
    match outcome {
        RequestOutcome::Executed(_) => {
            app.wake_starters.fire();
            idempotent::record_replayed(false);
            count("accepted");
        }
        RequestOutcome::Replayed(_) => {
            idempotent::record_replayed(true);
            link_to_payment(&app.ledger, &payment_id).await;
            count("replayed");
        }
        RequestOutcome::InProgress | RequestOutcome::Mismatch | RequestOutcome::Refused(_) => {}
    }
    match http::response(outcome) {
        Ok(response) => Ok(with_location(&payment_id, response)),
        Err(ResponseError::Key(refusal)) => Err(idempotent::problem(&refusal).into()),
        Err(ResponseError::BatchEffect(problem)) => Err(problem.into()),
    }
}

fn with_location(payment_id: &PaymentId, mut response: Response) -> Response {
    // An id is visible ASCII, so the conversion never fails.
    if let Ok(location) = HeaderValue::from_str(&path_of(payment_id.as_str())) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn count(outcome: &'static str) {
    metrics::counter!("api_payment_requests_total", "outcome" => outcome).increment(1);
}
