//! `/operator/v1/oidc`: the OpenID provider, and logins with its ID tokens.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use openapi_kit::ProblemDocument;
use payment_ledger::access::operators::{LoginOutcome, LoginRefusal};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use service_kit::peers::PeerAddress;
use service_kit::problem::{Json, Problem};
use utoipa::ToSchema;

use super::sessions::{OpenedSession, count, new_token, opened, refused};
use crate::app::App;
use crate::error::ApiError;
use crate::oidc::{Oidc, OidcError};

/// The OpenID provider at which operators log in.
#[derive(Serialize, ToSchema)]
pub(crate) struct OidcProvider {
    #[schema(example = "https://login.bank.example")]
    issuer: String,
    /// The client as which operators log in. It has no secret.
    #[schema(example = "payctl")]
    client_id: String,
    authorization_endpoint: String,
    token_endpoint: String,
    /// For a device without a browser; missing if the provider offers none.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_authorization_endpoint: Option<String>,
}

/// An ID token of the provider.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdTokenLogin {
    /// Issued for the client at most five minutes ago. It opens one session.
    #[schema(value_type = String, format = Password)]
    id_token: SecretString,
}

/// Retrieve the OpenID provider
#[utoipa::path(
    get, path = "/operator/v1/oidc", tag = "sessions",
    responses(
        (status = 200, description = "Where operators log in", body = OidcProvider),
        (status = 404, description = "oidc_not_configured: operators log in with passwords only",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 503, description = "oidc_provider_unavailable: the provider gave no usable answer",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retrieve_provider(State(app): State<Arc<App>>) -> Result<Json<OidcProvider>, ApiError> {
    let oidc = configured(&app)?;
    let endpoints = oidc.endpoints().await.map_err(|error| unavailable(&OidcError::Unavailable(error)))?;
    Ok(Json(OidcProvider {
        issuer: oidc.issuer().to_owned(),
        client_id: oidc.client_id().to_owned(),
        authorization_endpoint: endpoints.authorization_endpoint,
        token_endpoint: endpoints.token_endpoint,
        device_authorization_endpoint: endpoints.device_authorization_endpoint,
    }))
}

/// Log in with an ID token
///
/// The token proves an identity, and the operator with this identity gets the session.
#[utoipa::path(
    post, path = "/operator/v1/sessions/oidc", tag = "sessions", request_body = IdTokenLogin,
    responses(
        (status = 201, description = "The session is open", body = OpenedSession),
        (status = 401, description = "login_refused: the token proves no identity here, or has opened a session already",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 403, description = "identity_unknown, operator_disabled",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "oidc_not_configured: operators log in with passwords only",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 503, description = "oidc_provider_unavailable: the provider gave no usable answer; store_unavailable, request_timeout: log in again",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn log_in_with_id_token(
    State(app): State<Arc<App>>,
    peer: Option<Extension<PeerAddress>>,
    Json(login): Json<IdTokenLogin>,
) -> Result<(StatusCode, Json<OpenedSession>), ApiError> {
    let oidc = configured(&app)?;
    let address = peer.map(|Extension(peer)| peer.to_string());
    let identity = match oidc.identity(&login.id_token).await {
        Ok(identity) => identity,
        Err(error @ OidcError::Unavailable(_)) => return Err(unavailable(&error).into()),
        Err(OidcError::Refused(reason)) => {
            tracing::warn!(%reason, address, "a login was refused");
            return Err(refused(format!("{reason}; log in again")).into());
        }
    };
    let token = new_token()?;
    match app.ledger.log_identity_in(&identity, &login.id_token, &token, address.as_deref()).await? {
        LoginOutcome::Opened(session) => Ok(opened(&token, session)),
        LoginOutcome::Refused(reason) => {
            tracing::warn!(
                reason = reason.as_str(),
                address,
                subject = identity.subject(),
                "a login was refused"
            );
            let (issuer, subject) = (identity.issuer(), identity.subject());
            let problem = match reason {
                LoginRefusal::TokenUsed => refused("the ID token has opened a session already; log in again"),
                LoginRefusal::Disabled => {
                    count("refused");
                    let detail = format!("the operator with the identity {subject} of {issuer} is disabled");
                    Problem::new(StatusCode::FORBIDDEN, "operator_disabled", "The operator is disabled")
                        .detail(detail)
                }
                _ => {
                    count("refused");
                    let detail = format!(
                        "no operator has the identity {subject} of {issuer}; two administrators give it to one with payctl operators set-identity"
                    );
                    Problem::new(StatusCode::FORBIDDEN, "identity_unknown", "No operator has the identity")
                        .detail(detail)
                }
            };
            Err(problem.into())
        }
    }
}

fn configured(app: &App) -> Result<&Oidc, Problem> {
    app.oidc.as_ref().ok_or_else(|| {
        let detail = "operators log in with passwords only; a provider is configured with operator_api.oidc";
        Problem::missing("oidc_not_configured", detail)
    })
}

/// 503: without the provider nobody can log in there, and operators with a password still can.
fn unavailable(error: &OidcError) -> Problem {
    tracing::warn!(%error, "operators cannot log in at the OpenID provider");
    let title = "The OpenID provider is unavailable";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "oidc_provider_unavailable", title).detail(
        "the OpenID provider gave no usable answer; the log of operator-api has the reason. Try again later",
    )
}
