//! `POST /api/v1/payments`: accepts a payment, once per key.
//!
//! Claim, payment row and answer are one transaction. It is then certain to happen, even while Temporal
//! is down: workers pull accepted payments from the table.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use idempotency::{Fingerprint, Scope};
use jiff::Timestamp;
use payment_ledger::accept::{self, Accepted, NewPayment};
use payment_ledger::{accounts, api_keys};
use payment_protocol::SwitchProfile;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::money::format_major;
use serde::Serialize;
use service_kit::problem::{Json, Problem};
use utoipa::ToSchema;

use super::order::{Order, PaymentRequest};
use super::{PAYMENTS, path_of};
use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, excerpt};
use crate::extract::Key;
use crate::idempotent::{self, Begun, Held};
use crate::routes::docs::ProblemDocument;

/// The acceptance of a payment; a repeat gets the same bytes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Acceptance<'a> {
    /// The payment: ask for its state under this id.
    payment_id: &'a str,
    /// Its transaction.
    transaction_id: &'a str,
    /// Always `accepted`.
    status: &'a str,
    /// Decimal in major units, with all decimals of the currency.
    #[schema(example = "12.50")]
    amount: String,
    /// ISO 4217 code.
    currency: &'a str,
    /// The account that is charged.
    source_account: &'a str,
    /// The account that is paid.
    destination_account: &'a str,
    /// The payer's own id.
    #[serde(skip_serializing_if = "Option::is_none")]
    end_to_end_id: Option<&'a str>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// Accept a payment
///
/// 201 means that it will happen, or end with a reason; ask for its state with GET. Repeat the request
/// with the same key as often as needed: one payment is made.
#[utoipa::path(
    post, path = "/api/v1/payments", tag = "payments", security(("api_key" = [])),
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
    Caller(caller): Caller,
    Key(key): Key,
    Json(request): Json<PaymentRequest>,
) -> Result<Response, ApiError> {
    let order = Order::read(request)?;
    let payment_id = PaymentId::derive(&caller.tenant, &caller.client, key.as_str());
    tracing::Span::current().record("payment.id", payment_id.as_str());

    // A repeat is answered before anything that may have changed since is looked at.
    let scope = Scope { tenant: caller.tenant.as_str(), client: caller.client.as_str(), key: &key };
    let fingerprint = Fingerprint::of(scope.tenant, "POST", PAYMENTS, &order.canonical());
    let mut held = match idempotent::begin(&app, &scope, &fingerprint).await? {
        Begun::Held(held) => held,
        Begun::Replay(body) => return replay(&payment_id, body),
    };

    match place(&app, &mut held, &caller, &payment_id, &fingerprint, order).await {
        Ok(Placed::Now(body)) => {
            held.complete(StatusCode::CREATED, &body).await?;
            app.nudge.ask();
            count("accepted");
            located(&payment_id, idempotent::answer(StatusCode::CREATED, false, body))
        }
        // The key was pruned, the payment never is.
        Ok(Placed::Before { request_hash, body }) => {
            held.give_back().await?;
            if request_hash != fingerprint.as_bytes() {
                return Err(idempotent::payload_mismatch().into());
            }
            replay(&payment_id, body)
        }
        Err(refused) => {
            held.give_back().await?;
            Err(refused)
        }
    }
}

/// What became of an order.
enum Placed {
    /// The payment is stored; the answer.
    Now(Vec<u8>),
    /// It was stored before.
    Before {
        /// Fingerprint of the first request.
        request_hash: Vec<u8>,
        /// The first answer.
        body: Vec<u8>,
    },
}

/// Stores the payment in the transaction that holds the key.
async fn place(
    app: &App,
    held: &mut Held,
    caller: &api_keys::Caller,
    payment_id: &PaymentId,
    fingerprint: &Fingerprint,
    order: Order,
) -> Result<Placed, ApiError> {
    let profile = match judge(app, held, caller, &order).await {
        Ok(profile) => profile,
        // What is refused today may have been accepted before its key was pruned.
        Err(ApiError::Refused(problem)) => {
            return match accept::earlier(held.connection(), payment_id).await? {
                Some(accepted) => placed(accepted, Vec::new()),
                None => Err(problem.into()),
            };
        }
        Err(error) => return Err(error),
    };
    let body = acceptance(payment_id, &order, held.claimed_at())?;
    let new = NewPayment {
        payment_id: payment_id.clone(),
        tenant: caller.tenant.clone(),
        client: caller.client.clone(),
        source_account: order.source_account,
        destination_account: order.destination_account,
        end_to_end_id: order.end_to_end_id,
        money: order.money,
        profile,
        request_hash: fingerprint.as_bytes().to_vec(),
        response_body: body.clone(),
        accepted_at: held.claimed_at(),
    };
    let accepted = accept::accept(held.connection(), &new).await?;
    placed(accepted, body)
}

fn placed(accepted: Accepted, body: Vec<u8>) -> Result<Placed, ApiError> {
    Ok(match accepted {
        Accepted::New => Placed::Now(body),
        Accepted::Before { request_hash, response_body } => {
            Placed::Before { request_hash, body: response_body }
        }
    })
}

/// Judges an order by what is configured and stored now: 422 `no_route`, `over_limit`,
/// `unknown_account` or `wrong_currency`, the first that applies.
async fn judge(
    app: &App,
    held: &mut Held,
    caller: &api_keys::Caller,
    order: &Order,
) -> Result<SwitchProfile, ApiError> {
    let refused = |code: &'static str, detail: String| Err(Problem::unprocessable(code, detail).into());
    let Some(profile) = app.switches.route(&order.destination_account) else {
        return refused("no_route", format!("no switch serves {}", order.destination_account));
    };
    if order.money.amount_minor() > profile.amount_limit_minor {
        let limit = format_major(profile.amount_limit_minor, order.money.currency());
        let code = order.money.currency().code();
        return refused("over_limit", format!("{} takes at most {limit} {code}", profile.switch));
    }
    let account = &order.source_account;
    match accounts::currency_of(held.connection(), &caller.tenant, account).await? {
        None => refused("unknown_account", format!("you have no account {}", excerpt(account.as_str()))),
        Some(currency) if currency != order.money.currency().code() => {
            refused("wrong_currency", format!("{account} is an account in {currency}"))
        }
        Some(_) => Ok(profile.clone()),
    }
}

fn acceptance(payment_id: &PaymentId, order: &Order, created_at: Timestamp) -> Result<Vec<u8>, ApiError> {
    Ok(serde_json::to_vec(&Acceptance {
        payment_id: payment_id.as_str(),
        transaction_id: TxId::derive(payment_id).as_str(),
        status: "accepted",
        amount: format_major(order.money.amount_minor(), order.money.currency()),
        currency: order.money.currency().code(),
        source_account: order.source_account.as_str(),
        destination_account: order.destination_account.as_str(),
        end_to_end_id: order.end_to_end_id.as_deref(),
        created_at,
    })?)
}

/// The first answer again, as 200 (S4.1).
fn replay(payment_id: &PaymentId, body: Vec<u8>) -> Result<Response, ApiError> {
    count("replayed");
    located(payment_id, idempotent::answer(StatusCode::OK, true, body))
}

fn located(payment_id: &PaymentId, mut response: Response) -> Result<Response, ApiError> {
    // An id is visible ASCII, so the header is always made.
    if let Ok(location) = HeaderValue::from_str(&path_of(payment_id.as_str())) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

fn count(outcome: &'static str) {
    metrics::counter!("webhook_payments_total", "outcome" => outcome).increment(1);
}
