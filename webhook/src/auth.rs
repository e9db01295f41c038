//! Authentication and authorization: `Authorization: Bearer <key>`. Keys are stored and looked up as SHA-256, so the response
//! time reveals nothing about a key.
//!
//! Each route has the extractor of its scope: [`Payer`], [`Reader`], [`WebhookManager`] or [`WebhookReader`].

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use idempotency::http::{Identify, KeyOwner};
use payment_ledger::access::api_keys::{ApiKeyScope, Caller};
use service_kit::problem::Problem;
use service_kit::published;
use sha2::{Digest as _, Sha256};

use crate::app::App;
use crate::error::ApiError;
use crate::limits::{ChargedQuota, WriteQuota};

/// Longest accepted key; longer ones are not looked up.
const KEY_BYTES_MAX: usize = 256;

/// A caller with the scope `pay`.
pub(crate) struct Payer {
    /// The authenticated caller.
    pub(crate) caller: Caller,
    /// The write quota, charged once the request is known not to be a retry.
    pub(crate) writes: WriteQuota,
}

/// A caller with the scope `read` and quota for a read.
pub(crate) struct Reader(pub(crate) Caller);

/// A caller with the scope `webhooks`, for changes.
pub(crate) struct WebhookManager {
    /// The authenticated caller.
    pub(crate) caller: Caller,
    /// The write quota, charged once the request is known not to be a retry.
    pub(crate) writes: WriteQuota,
}

/// A caller with the scope `webhooks` and quota for a read.
pub(crate) struct WebhookReader(pub(crate) Caller);

/// The stored form of an API key.
#[must_use]
pub fn key_hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

impl FromRequestParts<Arc<App>> for Payer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let (caller, writes) = writer(parts, app, ApiKeyScope::Pay).await?;
        Ok(Self { caller, writes })
    }
}

impl FromRequestParts<Arc<App>> for WebhookManager {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let (caller, writes) = writer(parts, app, ApiKeyScope::Webhooks).await?;
        Ok(Self { caller, writes })
    }
}

impl FromRequestParts<Arc<App>> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        Ok(Self(reader(parts, app, ApiKeyScope::Read).await?))
    }
}

impl FromRequestParts<Arc<App>> for WebhookReader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        Ok(Self(reader(parts, app, ApiKeyScope::Webhooks).await?))
    }
}

/// Authorizes a write and returns the quota to charge.
async fn writer(parts: &Parts, app: &Arc<App>, scope: ApiKeyScope) -> Result<(Caller, WriteQuota), ApiError> {
    // The idempotency layer has already authorized the caller for the scope.
    let caller = match parts.extensions.get::<Caller>() {
        Some(caller) => caller.clone(),
        None => authorize(parts, app, scope).await?,
    };
    let writes = app.limits.writes(caller.clone(), ChargedQuota::of(&parts.extensions));
    Ok((caller, writes))
}

/// Authorizes and counts a read.
async fn reader(parts: &Parts, app: &App, scope: ApiKeyScope) -> Result<Caller, ApiError> {
    let caller = authorize(parts, app, scope).await?;
    app.limits.admit_read(&caller, &ChargedQuota::of(&parts.extensions))?;
    Ok(caller)
}

/// Authorizes the caller before its idempotency key is read, and adds the caller to the extensions.
#[derive(Clone)]
pub(crate) struct ByApiKey {
    pub(crate) app: Arc<App>,
    /// The scope that the API key must have.
    pub(crate) scope: ApiKeyScope,
}

impl Identify for ByApiKey {
    async fn identify(&self, parts: &mut Parts) -> Result<KeyOwner, Response> {
        let caller = authorize(parts, &self.app, self.scope).await.map_err(IntoResponse::into_response)?;
        let owner = KeyOwner { tenant: caller.tenant.to_string(), client: caller.client.to_string() };
        parts.extensions.insert(caller);
        Ok(owner)
    }
}

/// The caller, if its key is valid and has the scope.
///
/// # Errors
/// 401 or 403, with the reason in `WWW-Authenticate` (RFC 6750).
async fn authorize(parts: &Parts, app: &App, scope: ApiKeyScope) -> Result<Caller, ApiError> {
    let key = bearer(&parts.headers).ok_or_else(|| {
        Problem::unauthorized("the request has no API key; send an API key as Authorization: Bearer <key>")
    })?;
    if !app.accepts_demo_key && published::is_published(key) {
        return Err(Problem::unauthorized(
            "the request's API key is the demo's, which everybody can read; the bank accepts it on its own machine only",
        )
        .challenge("Bearer error=\"invalid_token\"")
        .into());
    }
    // The response is the same for unknown, revoked and expired keys, so that it helps no attacker.
    let key = app.ledger.active_api_key(&key_hash(key)).await?.ok_or_else(|| {
        Problem::unauthorized("the request's API key is unknown, revoked or expired; send a valid API key")
            .challenge("Bearer error=\"invalid_token\"")
    })?;
    tracing::Span::current().record("api_key.id", key.id.as_str());
    if !key.scopes.allow(scope) {
        return Err(insufficient_scope(scope).into());
    }
    Ok(key.caller)
}

fn insufficient_scope(scope: ApiKeyScope) -> Problem {
    let challenge = match scope {
        ApiKeyScope::Pay => "Bearer error=\"insufficient_scope\", scope=\"pay\"",
        ApiKeyScope::Read => "Bearer error=\"insufficient_scope\", scope=\"read\"",
        ApiKeyScope::Webhooks => "Bearer error=\"insufficient_scope\", scope=\"webhooks\"",
    };
    Problem::new(StatusCode::FORBIDDEN, "insufficient_scope", "Insufficient scope")
        .detail(format!("the API key does not have the scope {scope}; use a key that has it"))
        .challenge(challenge)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    let is_valid = scheme.eq_ignore_ascii_case("bearer") && !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    is_valid.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_bearer_api_key_per_request_is_accepted() {
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
