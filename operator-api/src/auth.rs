//! Whose session a request has: `Authorization: Bearer <token>`. Tokens are looked up as SHA-256, so the response time reveals nothing
//! about a token.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use payment_ledger::Ledger;
use payment_ledger::access::operators::{OperatorRole, OperatorSession, SessionToken};
use service_kit::problem::Problem;

use crate::app::App;
use crate::error::{ApiError, role_missing};

/// An operator who is logged in. Every role may read.
pub(crate) struct LoggedIn {
    /// The session.
    pub(crate) session: OperatorSession,
    /// The session's token.
    pub(crate) token: SessionToken,
    /// The ledger, acting in the session.
    pub(crate) ledger: Ledger,
}

impl LoggedIn {
    /// The operator's name.
    pub(crate) fn name(&self) -> &str {
        &self.session.operator.name
    }

    /// Requires one of some roles.
    ///
    /// # Errors
    /// 403: the operator has none of them.
    pub(crate) fn require(&self, roles: &[OperatorRole]) -> Result<(), Problem> {
        if roles.iter().any(|role| self.session.operator.has(*role)) {
            return Ok(());
        }
        let needed = roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(" or ");
        Err(role_missing(format!(
            "operator {} does not have the role {needed}; two administrators give it with payctl operators set-roles",
            self.name()
        )))
    }
}

impl FromRequestParts<Arc<App>> for LoggedIn {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let token = bearer(&parts.headers).ok_or_else(|| {
            Problem::unauthorized(
                "the request has no session; log in, and send the token as Authorization: Bearer <token>",
            )
        })?;
        let session = match SessionToken::parse(token) {
            Some(token) => app.ledger.operator_session(&token).await?.map(|session| (session, token)),
            None => None,
        };
        // One answer for all, so that it helps no attacker.
        let (session, token) = session.ok_or_else(|| {
            Problem::unauthorized("the session is unknown or has ended; log in again")
                .challenge("Bearer error=\"invalid_token\"")
        })?;
        let ledger = app.ledger.acting_in(token.clone());
        Ok(Self { session, token, ledger })
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}
