//! Limit of requests in flight. A request above the limit is refused at once instead of queued: under overload a queue only
//! delays every request.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use service_kit::problem::Problem;
use tokio::sync::Semaphore;

/// Admits a request if a permit is free. Health, readiness and metrics routes are not limited.
pub(crate) async fn admit(State(permits): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    match permits.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => {
            metrics::counter!("api_overloaded_total").increment(1);
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Too many requests in flight")
                .detail("the payments API is at its limit of concurrent requests and nothing was done; retry the request later")
                .retry_after(Duration::from_secs(1))
                .into_response()
        }
    }
}
