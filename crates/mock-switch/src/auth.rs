//! The one bearer token of `/v1`.

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;
use secrecy::ExposeSecret;
use service_kit::problem::Problem;

use crate::switch::Shared;

/// Lets a request pass if it carries the configured token.
pub(crate) async fn bearer(
    State(switch): State<Shared>,
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
        Some(token) if same(token.as_bytes(), expected.as_bytes()) => Ok(next.run(request).await),
        Some(_) => Err(Problem::unauthorized("the token is not known here")),
        None => Err(Problem::unauthorized("a bearer token is required")),
    }
}

/// Compares without stopping at the first difference, so that the time taken
/// tells nothing but the length.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}
