//! The bearer token of `/v1`, and of `/admin` except for its reads.

use axum::extract::{Request, State};
use axum::http::Method;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;
use secrecy::ExposeSecret;
use service_kit::problem::Problem;

use crate::state::SharedSwitch;

/// Passes requests with the configured token; others are answered 401.
pub(crate) async fn bearer(
    State(switch): State<SharedSwitch>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let given = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    let expected = switch.config.api_token.expose_secret();
    match given {
        Some(token) if constant_time_eq(token.as_bytes(), expected.as_bytes()) => Ok(next.run(request).await),
        Some(_) => Err(Problem::unauthorized(
            "the bearer token of the request is not the configured api_token of the mock switch; send the configured token",
        )),
        None => {
            Err(Problem::unauthorized("the request has no bearer token; send Authorization: Bearer TOKEN"))
        }
    }
}

/// Passes reads, and requests with the configured token: a browser shows the book, and no webhook of a tenant settles a transfer.
pub(crate) async fn bearer_for_changes(
    switch: State<SharedSwitch>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if request.method() == Method::GET {
        Ok(next.run(request).await)
    } else {
        bearer(switch, request, next).await
    }
}

/// Compares in constant time for equal lengths, so that the duration reveals nothing but the length.
fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}
