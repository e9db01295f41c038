//! Limits of requests in flight. A request above its limit is refused at once instead of queued: under overload a queue only
//! delays every request.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use service_kit::problem::Problem;
use tokio::sync::Semaphore;

use crate::config::{ApiOptions, SetupError, not_zero};

/// The free permits. Clients and switches have their own: neither uses up what the other needs.
pub(crate) struct Admission {
    clients: Semaphore,
    switches: Semaphore,
}

impl Admission {
    /// All permits.
    ///
    /// # Errors
    /// [`SetupError::Zero`].
    pub(crate) fn new(options: &ApiOptions) -> Result<Self, SetupError> {
        not_zero("api.max_in_flight", options.max_in_flight)?;
        not_zero("api.callbacks_max_in_flight", options.callbacks_max_in_flight)?;
        Ok(Self {
            clients: Semaphore::new(options.max_in_flight),
            switches: Semaphore::new(options.callbacks_max_in_flight),
        })
    }
}

/// Admits a request if a permit is free. Health and readiness are not limited.
pub(crate) async fn admit(State(permits): State<Arc<Admission>>, request: Request, next: Next) -> Response {
    let is_callback = request.uri().path().starts_with("/callbacks/");
    let (permits, from) =
        if is_callback { (&permits.switches, "switches") } else { (&permits.clients, "clients") };
    match permits.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => {
            metrics::counter!("api_overloaded_total", "from" => from).increment(1);
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Too many requests in flight")
                .detail("the payments API is at its limit of concurrent requests and nothing was done; retry the request later")
                .retry_after(Duration::from_secs(1))
                .into_response()
        }
    }
}
