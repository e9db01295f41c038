//! `/operator/v1/sessions`: logins, whose session it is, logouts.

use openapi_kit::ProblemDocument;
use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use payment_ledger::access::operators::{LoginOutcome, OperatorSession, SessionToken};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use service_kit::peers::PeerAddress;
use service_kit::problem::{Json, Problem};
use service_kit::published;
use utoipa::ToSchema;

use crate::app::App;
use crate::auth::LoggedIn;
use crate::error::ApiError;

/// A name and a password.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    /// The operator's name.
    #[schema(example = "ann", min_length = 1, max_length = 64)]
    name: String,
    /// The operator's password.
    #[schema(value_type = String, format = Password, max_length = 128)]
    password: SecretString,
}

/// A new session.
#[derive(Serialize, ToSchema)]
pub(crate) struct OpenedSession {
    /// Sent as `Authorization: Bearer` with each request; shown only here.
    token: String,
    #[serde(flatten)]
    session: Session,
}

/// A session and its operator.
#[derive(Serialize, ToSchema)]
pub(crate) struct Session {
    session_id: String,
    /// The name that decisions and the audit log record.
    operator: String,
    /// What the operator may do, beside reading.
    #[schema(value_type = Vec<String>, example = json!(["operator", "approver"]))]
    roles: Vec<&'static str>,
    /// When the session ends. It ends before if it is not used for 30 minutes.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

impl From<OperatorSession> for Session {
    fn from(session: OperatorSession) -> Self {
        Self {
            session_id: session.session_id,
            operator: session.operator.name,
            roles: session.operator.roles.iter().map(|role| role.as_str()).collect(),
            expires_at: session.expires_at,
        }
    }
}

/// Log in
///
/// After five failed attempts the login is locked for 15 minutes; every refusal has the same answer.
#[utoipa::path(
    post, path = "/operator/v1/sessions", tag = "sessions", request_body = Login,
    responses(
        (status = 201, description = "The session is open", body = OpenedSession),
        (status = 401, description = "login_refused: the name or the password is wrong, or the login is locked",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "body_too_large", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 429, description = "login_rate_limited: the address has tried too often",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn log_in(
    State(app): State<Arc<App>>,
    peer: Option<Extension<PeerAddress>>,
    Json(login): Json<Login>,
) -> Result<(StatusCode, Json<OpenedSession>), ApiError> {
    let peer = peer.map(|Extension(peer)| peer);
    app.logins.take(peer)?;
    let Login { name, password } = login;
    if !app.accepts_demo_passwords && published::is_published(password.expose_secret()) {
        tracing::warn!(
            "an operator's login has a password that the demo publishes, which is accepted on the demo's own machine only"
        );
        return Err(password_refused().into());
    }
    let token = new_token()?;
    let address = peer.map(|peer| peer.to_string());
    match app.ledger.log_operator_in(&name, &password, &token, address.as_deref()).await? {
        LoginOutcome::Opened(session) => Ok(opened(&token, session)),
        LoginOutcome::Refused(reason) => {
            // The name is not logged: people type their password into the wrong field.
            tracing::warn!(reason = reason.as_str(), address, "a login was refused");
            Err(password_refused().into())
        }
    }
}

/// The token of a session that is about to be opened.
///
/// # Errors
/// 500: the operating system has no random bytes.
pub(super) fn new_token() -> Result<SessionToken, Problem> {
    SessionToken::generate().map_err(|error| {
        tracing::error!(%error, "the operating system has no random bytes for the token of a session");
        Problem::internal()
    })
}

/// The answer to a login that opened a session.
pub(super) fn opened(token: &SessionToken, session: OperatorSession) -> (StatusCode, Json<OpenedSession>) {
    count("opened");
    tracing::info!(operator = session.operator.name, session = session.session_id, "an operator logged in");
    let body = OpenedSession { token: token.expose().to_owned(), session: session.into() };
    (StatusCode::CREATED, Json(body))
}

fn password_refused() -> Problem {
    // The reason is in the log alone: who reads metrics must not learn which names exist.
    refused(
        "the name or the password is wrong, or the login is locked for 15 minutes after five failed attempts; who has the database owner's rights unlocks it with payctl operators reset-password",
    )
}

/// Counts a login that is refused, and answers it.
pub(super) fn refused(detail: impl Into<Cow<'static, str>>) -> Problem {
    count("refused");
    Problem::new(StatusCode::UNAUTHORIZED, "login_refused", "The login is refused").detail(detail)
}

/// Counts a login.
pub(super) fn count(outcome: &'static str) {
    metrics::counter!("operator_logins_total", "outcome" => outcome).increment(1);
}

/// Retrieve your session
#[utoipa::path(
    get, path = "/operator/v1/sessions/current", tag = "sessions", security(("session" = [])),
    responses((status = 200, description = "The session", body = Session)),
)]
pub(crate) async fn current_session(logged_in: LoggedIn) -> Json<Session> {
    Json(logged_in.session.into())
}

/// Log out
#[utoipa::path(
    delete, path = "/operator/v1/sessions/current", tag = "sessions", security(("session" = [])),
    responses((status = 204, description = "The session has ended")),
)]
pub(crate) async fn log_out(logged_in: LoggedIn) -> Result<StatusCode, ApiError> {
    logged_in.ledger.end_operator_session(&logged_in.token).await?;
    tracing::info!(
        operator = logged_in.name(),
        session = logged_in.session.session_id,
        "an operator logged out"
    );
    Ok(StatusCode::NO_CONTENT)
}
