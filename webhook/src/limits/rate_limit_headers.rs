//! Rate limit headers of a response (draft-ietf-httpapi-ratelimit-headers-11): `RateLimit-Policy` is the agreed rate,
//! `RateLimit` the remaining quota; after a refusal `Retry-After` ends with `RateLimit`'s window.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use service_kit::problem::Problem;

use super::bucket::Quota;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The quota that a request was charged to, for the headers of its response; empty if the request was not counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChargedQuota(Arc<OnceLock<Quota>>);

impl ChargedQuota {
    /// The cell of this request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Whether the request was counted and admitted.
    pub(super) fn is_admitted(&self) -> bool {
        self.0.get().is_some_and(|quota| quota.is_admitted)
    }

    /// Records the quota for the response.
    ///
    /// # Errors
    /// 429 `rate_limited`.
    pub(super) fn charge(&self, quota: Quota) -> Result<(), Problem> {
        // A request is counted once.
        let _ = self.0.set(quota);
        if quota.is_admitted { Ok(()) } else { Err(refused(quota)) }
    }
}

fn refused(quota: Quota) -> Problem {
    let Quota { policy, rate, .. } = quota;
    metrics::counter!("api_rate_limited_total", "policy" => policy).increment(1);
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "Too many requests")
        .detail(format!(
            "your client exceeded its rate of {} {policy} per second with bursts of {} and nothing was done; retry the \
             request after Retry-After",
            rate.per_s, rate.burst
        ))
        .retry_after(Duration::from_secs(quota.reset_s))
}

/// The layer that writes the headers.
pub(crate) async fn write_rate_limit_headers(mut request: Request, next: Next) -> Response {
    let charged = ChargedQuota::default();
    request.extensions_mut().insert(charged.clone());
    let mut response = next.run(request).await;
    if let Some(quota) = charged.0.get() {
        write(quota, response.headers_mut());
    }
    response
}

fn write(quota: &Quota, headers: &mut HeaderMap) {
    let Quota { policy, rate, remaining, reset_s, .. } = quota;
    // The header counts whole seconds, so the window is that of the whole burst.
    let window_s = rate.burst.get().div_ceil(rate.per_s.get());
    let fields = [
        (POLICY, format!("\"{policy}\";q={};w={window_s}", rate.burst)),
        (LIMIT, format!("\"{policy}\";r={remaining};t={reset_s}")),
    ];
    for (name, text) in fields {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(name, value);
        }
    }
}
