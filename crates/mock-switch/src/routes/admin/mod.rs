//! For tests and people: scripts, the book, the clock, the shape. There is no
//! token: where others can reach the switch, `admin = false` takes it away.

mod behaviours;
mod book;
mod decisions;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Problem};

use crate::clock::MAX_OFFSET_MS;
use crate::error::Failure;
use crate::settings::Shape;
use crate::switch::Shared;

/// All admin routes.
pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/admin/behaviours", get(behaviours::list))
        .route(
            "/admin/behaviours/{reference}",
            put(behaviours::set).get(behaviours::show).delete(behaviours::remove),
        )
        .route("/admin/transfers/{reference}/settle", post(decisions::settle))
        .route("/admin/transfers/{reference}/reject", post(decisions::reject))
        .route("/admin/transfers/{reference}/callback", post(decisions::callback))
        .route("/admin/book", get(book::all))
        .route("/admin/book/{reference}", get(book::one))
        .route("/admin/callbacks", get(book::callbacks))
        .route("/admin/clock", put(set_clock).get(show_clock).delete(reset_clock))
        .route("/admin/shape", put(set_shape).get(show_shape).delete(reset_shape))
}

/// The clock as it is set and shown.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clock {
    /// Milliseconds ahead of the true time.
    offset_ms: i64,
    /// The time it shows; not read.
    #[serde(skip_deserializing)]
    now: Option<jiff::Timestamp>,
}

async fn set_clock(State(switch): State<Shared>, Json(clock): Json<Clock>) -> Result<Json<Clock>, Failure> {
    if !(-MAX_OFFSET_MS..=MAX_OFFSET_MS).contains(&clock.offset_ms) {
        let detail = "offset_ms is further than ten years";
        return Err(Problem::bad_request("invalid_field", detail).into());
    }
    switch.settings.set_clock(&switch.pool, Some(clock.offset_ms)).await?;
    Ok(show_clock(State(switch)).await)
}

async fn reset_clock(State(switch): State<Shared>) -> Result<StatusCode, Failure> {
    switch.settings.set_clock(&switch.pool, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn show_clock(State(switch): State<Shared>) -> Json<Clock> {
    let current = switch.settings.current();
    Json(Clock { offset_ms: current.clock_offset_ms, now: Some(current.now()) })
}

async fn set_shape(State(switch): State<Shared>, Json(shape): Json<Shape>) -> Result<Json<Shape>, Failure> {
    switch.settings.set_shape(&switch.pool, Some(shape)).await?;
    Ok(Json(shape))
}

async fn reset_shape(State(switch): State<Shared>) -> Result<StatusCode, Failure> {
    switch.settings.set_shape(&switch.pool, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn show_shape(State(switch): State<Shared>) -> Json<Shape> {
    Json(switch.settings.current().shape)
}
