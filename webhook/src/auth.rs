//! Who calls: `Authorization: Bearer <key>`. Keys are stored as SHA-256, never as they are.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use idempotency::http::{Identify, Owner};
use payment_ledger::api_keys;
use service_kit::problem::Problem;
use sha2::{Digest as _, Sha256};

use crate::app::App;
use crate::error::ApiError;

/// Longer keys are not looked up.
const KEY_BYTES_MAX: usize = 256;

/// The caller, known by its key.
pub(crate) struct Caller(pub(crate) api_keys::Caller);

/// What is stored of an API key.
#[must_use]
pub fn key_hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        // Who came through the layer of the keys is known already.
        if let Some(caller) = parts.extensions.get::<api_keys::Caller>() {
            return Ok(Self(caller.clone()));
        }
        let key = bearer(&parts.headers)
            .ok_or_else(|| Problem::unauthorized("send your key as Authorization: Bearer <key>"))?;
        let caller = app.ledger.caller(&key_hash(key)).await?;
        // Unknown and revoked read the same: which one it is helps only a guesser.
        caller.map(Self).ok_or_else(|| Problem::unauthorized("this key is not known here").into())
    }
}

/// Finds out who calls before a key is looked at: the caller is left in the extensions.
#[derive(Clone)]
pub(crate) struct ByApiKey(pub(crate) Arc<App>);

impl Identify for ByApiKey {
    async fn identify(&self, parts: &mut Parts) -> Result<Owner, Response> {
        let Caller(caller) =
            Caller::from_request_parts(parts, &self.0).await.map_err(IntoResponse::into_response)?;
        let owner = Owner { tenant: caller.tenant.to_string(), client: caller.client.to_string() };
        parts.extensions.insert(caller);
        Ok(owner)
    }
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
