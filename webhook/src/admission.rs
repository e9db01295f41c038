//! Limits of requests in flight. A request above its limit is refused at once instead of queued: under overload a queue only
//! delays every request. One address has a part of each limit, so that a single machine uses up none of them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use service_kit::peers::{PeerAddress, PeerShares};
use service_kit::problem::Problem;
use tokio::sync::Semaphore;

use crate::config::{ApiOptions, SetupError, not_zero};

/// The free permits. Clients and switches have their own: neither uses up what the other needs.
pub(crate) struct Admission {
    clients: Permits,
    switches: Permits,
}

struct Permits {
    from: &'static str,
    all: Semaphore,
    shares: PeerShares,
}

impl Permits {
    fn new(from: &'static str, max: usize, max_per_address: usize) -> Self {
        Self { from, all: Semaphore::new(max), shares: PeerShares::new(max_per_address) }
    }
}

impl Admission {
    /// All permits.
    ///
    /// # Errors
    /// [`SetupError::Zero`].
    pub(crate) fn new(options: &ApiOptions) -> Result<Self, SetupError> {
        not_zero("api.max_in_flight", options.max_in_flight)?;
        not_zero("api.callbacks_max_in_flight", options.callbacks_max_in_flight)?;
        not_zero("api.max_in_flight_per_address", options.max_in_flight_per_address)?;
        not_zero("api.callbacks_max_in_flight_per_address", options.callbacks_max_in_flight_per_address)?;
        let (of_clients, of_switches) =
            (options.max_in_flight_per_address, options.callbacks_max_in_flight_per_address);
        Ok(Self {
            clients: Permits::new("clients", options.max_in_flight, of_clients),
            switches: Permits::new("switches", options.callbacks_max_in_flight, of_switches),
        })
    }
}

/// Admits a request if a permit is free, and its address has not its part of them. Health and readiness are not limited.
pub(crate) async fn admit(State(admission): State<Arc<Admission>>, request: Request, next: Next) -> Response {
    let is_callback = request.uri().path().starts_with("/callbacks/");
    let permits = if is_callback { &admission.switches } else { &admission.clients };
    let peer = request.extensions().get::<PeerAddress>().copied();
    let share = peer.map(|peer| permits.shares.take(peer));
    if matches!(share, Some(None)) {
        return overloaded(permits, "address");
    }
    match permits.all.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => overloaded(permits, "all"),
    }
}

fn overloaded(permits: &Permits, limit: &'static str) -> Response {
    metrics::counter!("api_overloaded_total", "from" => permits.from, "limit" => limit).increment(1);
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Too many requests in flight")
        .detail("the payments API is at its limit of concurrent requests and nothing was done; retry the request later")
        .retry_after(Duration::from_secs(1))
        .into_response()
}
