//! The authorization code with PKCE (RFC 7636) in a browser on this machine, which brings the code back to a port of payctl's own
//! (RFC 8252, section 7.3).

use std::sync::Mutex;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use oauth2::{AuthorizationCode, CsrfToken, PkceCodeChallenge, RedirectUrl, Scope};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::{LOGIN_TIMEOUT, OidcProvider, id_token};
use crate::api_key::random_hex;
use crate::output::{Output, escape_control};

/// Random bytes of the nonce, which binds the token to this login.
const NONCE_BYTES: usize = 16;

/// What the provider sends the browser back with.
#[derive(Debug, Deserialize)]
struct Callback {
    state: Option<String>,
    code: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

/// The first callback of this login goes to who waits for it.
struct Waiting {
    state: CsrfToken,
    callback: Mutex<Option<oneshot::Sender<Callback>>>,
}

/// Gets an ID token while the operator logs in with a browser on this machine.
///
/// # Errors
/// No port is free, the provider refuses or does not answer, or the operator takes too long.
pub(in crate::operator_api) async fn log_in_with_browser(
    provider: &OidcProvider,
    out: &mut Output<'_>,
) -> anyhow::Result<SecretString> {
    let listener =
        TcpListener::bind(("127.0.0.1", 0)).await.context("no local port is free for the login")?;
    let redirect = format!("http://{}/callback", listener.local_addr()?);
    let (client, http) = (provider.client()?.set_redirect_uri(RedirectUrl::new(redirect)?), provider.http()?);
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let nonce = random_hex::<NONCE_BYTES>()?;
    let (url, state) = client
        .authorize_url(CsrfToken::new_random)
        .add_scope(Scope::new("openid".into()))
        .add_extra_param("nonce", nonce.clone())
        .set_pkce_challenge(challenge)
        .url();
    out.write_line(format_args!("open this page in a browser on this machine:"))?;
    out.write_line(url)?;
    let code = tokio::time::timeout(LOGIN_TIMEOUT, callback(listener, state)).await;
    let code = code.context("nobody logged in at the OpenID provider within 5 minutes")??;
    let tokens = client
        .exchange_code(code)
        .set_pkce_verifier(verifier)
        .request_async(&http)
        .await
        .context("the OpenID provider gave no token for the code")?;
    let token = id_token(&tokens)?;
    anyhow::ensure!(
        nonce_of(&token).as_ref() == Some(&nonce),
        "the OpenID provider answered with the token of another login"
    );
    Ok(token)
}

/// Waits for the browser to bring the code.
async fn callback(listener: TcpListener, state: CsrfToken) -> anyhow::Result<AuthorizationCode> {
    let (sender, receiver) = oneshot::channel();
    let waiting = Arc::new(Waiting { state, callback: Mutex::new(Some(sender)) });
    let app = Router::new().route("/callback", get(receive)).with_state(waiting);
    let (stop, stopped) = oneshot::channel::<()>();
    // The browser has its page before the server stops.
    let server = axum::serve(listener, app).with_graceful_shutdown(async move {
        let _ = stopped.await;
    });
    let server = tokio::spawn(server.into_future());
    let callback = receiver.await.context("the local server of the login ended")?;
    let _ = stop.send(());
    let _ = tokio::time::timeout(std::time::Duration::from_secs(2), server).await;
    if let Some(error) = callback.error {
        let description = callback.error_description.unwrap_or_default();
        let why = escape_control(&format!("{error} {description}"));
        anyhow::bail!("the OpenID provider refused the login: {why}");
    }
    Ok(AuthorizationCode::new(callback.code.context("the OpenID provider sent no code")?))
}

/// Anybody on this machine can call this. Only the provider knows the state.
async fn receive(
    State(waiting): State<Arc<Waiting>>,
    Query(callback): Query<Callback>,
) -> (StatusCode, &'static str) {
    if callback.state.as_deref() != Some(waiting.state.secret().as_str()) {
        return (StatusCode::BAD_REQUEST, "This is not the login that payctl waits for.");
    }
    let sender = waiting.callback.lock().ok().and_then(|mut sender| sender.take());
    match sender.map(|sender| sender.send(callback)) {
        Some(Ok(())) => (StatusCode::OK, "The login is back at payctl. You can close this page."),
        _ => (StatusCode::GONE, "payctl does not wait for this login any more."),
    }
}

/// The nonce in a token that came from the provider itself. operator-api checks the rest.
fn nonce_of(token: &SecretString) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        nonce: String,
    }
    let claims = token.expose_secret().split('.').nth(1)?;
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
    serde_json::from_slice::<Claims>(&claims).ok().map(|claims| claims.nonce)
}
