//! Who calls, and may it: `Authorization: Bearer <key>`. Keys are stored as SHA-256, never as they are,
//! and found by it, so the time of an answer says nothing of a key.
//!
//! A route takes the extractor of what it does: [`Payer`], [`Reader`], [`WebhookManager`] or [`WebhookReader`].

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use idempotency::http::{Identify, Owner};
use payment_ledger::access::api_keys::{Caller, Scope};
use service_kit::problem::Problem;
use sha2::{Digest as _, Sha256};

use crate::app::App;
use crate::error::ApiError;
use crate::limits::{Told, Writes};

/// Longer keys are not looked up.
const KEY_BYTES_MAX: usize = 256;

/// A caller that may make and cancel payments.
pub(crate) struct Payer {
    /// Who it is.
    pub(crate) caller: Caller,
    /// To be asked once the request turned out to be no repeat.
    pub(crate) writes: Writes,
}

/// A caller that may look at payments and accounts, and has quota for it.
pub(crate) struct Reader(pub(crate) Caller);

/// A caller that may change its tenant's webhook endpoints.
pub(crate) struct WebhookManager {
    /// Who it is.
    pub(crate) caller: Caller,
    /// To be asked once the request turned out to be no repeat.
    pub(crate) writes: Writes,
}

/// A caller that may look at its tenant's webhook endpoints, and has quota for it.
pub(crate) struct WebhookReader(pub(crate) Caller);

/// What is stored of an API key.
#[must_use]
pub fn key_hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

impl FromRequestParts<Arc<App>> for Payer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let (caller, writes) = writer(parts, app, Scope::Pay).await?;
        Ok(Self { caller, writes })
    }
}

impl FromRequestParts<Arc<App>> for WebhookManager {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let (caller, writes) = writer(parts, app, Scope::Webhooks).await?;
        Ok(Self { caller, writes })
    }
}

impl FromRequestParts<Arc<App>> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        Ok(Self(reader(parts, app, Scope::Read).await?))
    }
}

impl FromRequestParts<Arc<App>> for WebhookReader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        Ok(Self(reader(parts, app, Scope::Webhooks).await?))
    }
}

/// A caller that changes something, and its way to count it.
async fn writer(parts: &Parts, app: &Arc<App>, scope: Scope) -> Result<(Caller, Writes), ApiError> {
    // Who came through the layer of the keys is known already, and has the scope.
    let caller = match parts.extensions.get::<Caller>() {
        Some(known) => known.clone(),
        None => authorised(parts, app, scope).await?,
    };
    let writes = app.limits.writes(caller.clone(), Told::of(&parts.extensions));
    Ok((caller, writes))
}

/// A caller that looks at something; it is counted.
async fn reader(parts: &Parts, app: &App, scope: Scope) -> Result<Caller, ApiError> {
    let caller = authorised(parts, app, scope).await?;
    app.limits.admit_read(&caller, &Told::of(&parts.extensions))?;
    Ok(caller)
}

/// Finds out who calls, and may it, before an idempotency key is looked at: the caller is left in the extensions.
#[derive(Clone)]
pub(crate) struct ByApiKey {
    pub(crate) app: Arc<App>,
    /// What the key must be good for.
    pub(crate) scope: Scope,
}

impl Identify for ByApiKey {
    async fn identify(&self, parts: &mut Parts) -> Result<Owner, Response> {
        let caller = authorised(parts, &self.app, self.scope).await.map_err(IntoResponse::into_response)?;
        let owner = Owner { tenant: caller.tenant.to_string(), client: caller.client.to_string() };
        parts.extensions.insert(caller);
        Ok(owner)
    }
}

/// The caller, known by its key, if the key has the scope. 401 or 403 otherwise, told apart for programs
/// by `WWW-Authenticate` (RFC 6750).
async fn authorised(parts: &Parts, app: &App, scope: Scope) -> Result<Caller, ApiError> {
    let key = bearer(&parts.headers)
        .ok_or_else(|| Problem::unauthorized("send your key as Authorization: Bearer <key>"))?;
    // Unknown, revoked and expired read the same: which one it is helps only a guesser.
    let known = app.ledger.active_api_key(&key_hash(key)).await?.ok_or_else(|| {
        Problem::unauthorized("this key is not known here").challenge("Bearer error=\"invalid_token\"")
    })?;
    tracing::Span::current().record("api_key.id", known.id.as_str());
    if !known.scopes.allow(scope) {
        return Err(insufficient(scope).into());
    }
    Ok(known.caller)
}

fn insufficient(scope: Scope) -> Problem {
    let challenge = match scope {
        Scope::Pay => "Bearer error=\"insufficient_scope\", scope=\"pay\"",
        Scope::Read => "Bearer error=\"insufficient_scope\", scope=\"read\"",
        Scope::Webhooks => "Bearer error=\"insufficient_scope\", scope=\"webhooks\"",
        Scope::Operate => "Bearer error=\"insufficient_scope\", scope=\"operate\"",
    };
    Problem::new(StatusCode::FORBIDDEN, "insufficient_scope", "Your key may not do this")
        .detail(format!("it needs the scope {scope}"))
        .challenge(challenge)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    let fits = scheme.eq_ignore_ascii_case("bearer") && !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    fits.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_bearer_key_is_taken() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(read(&["Bearer k"]), Some("k".into()));
        assert_eq!(read(&["bearer k"]), Some("k".into()));
        for bad in [&[][..], &["k"], &["Basic k"], &["Bearer "], &["Bearer"], &["Bearer k", "Bearer k"]] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
        assert_eq!(read(&[&format!("Bearer {}", "k".repeat(KEY_BYTES_MAX + 1))]), None);
    }
}
