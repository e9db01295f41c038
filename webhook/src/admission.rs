//! How many requests may be under way. One more is sent away at once: a queue in front of a full
//! house only makes everybody late.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use service_kit::problem::Problem;
use tokio::sync::Semaphore;

/// Lets a request in if there is room. Health, readiness and metrics are outside.
pub(crate) async fn admit(State(room): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    match room.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => {
            metrics::counter!("api_overloaded_total").increment(1);
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Too many requests at once")
                .retry_after(Duration::from_secs(1))
                .into_response()
        }
    }
}
