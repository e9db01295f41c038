//! The admin API for tests: behaviours, the book, the clock and the shape. A change requires the bearer
//! token; `admin = false` disables it.

mod behaviours;
mod book;
mod transfers;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Problem};

use crate::clock::MAX_OFFSET_MS;
use crate::error::RequestError;
use crate::settings::Shape;
use crate::state::SharedSwitch;

/// All admin routes.
pub(super) fn routes() -> Router<SharedSwitch> {
    Router::new()
        .route("/admin/behaviours", get(behaviours::list))
        .route(
            "/admin/behaviours/{reference}",
            put(behaviours::set).get(behaviours::show).delete(behaviours::remove),
        )
        .route("/admin/transfers/{reference}/settle", post(transfers::settle))
        .route("/admin/transfers/{reference}/reject", post(transfers::reject))
        .route("/admin/transfers/{reference}/forget", post(transfers::forget))
        .route("/admin/transfers/{reference}/return", post(transfers::return_money))
        .route("/admin/transfers/{reference}/posting", post(transfers::posting))
        .route("/admin/transfers/{reference}/recall-answer", post(transfers::recall_answer))
        .route("/admin/transfers/{reference}/callback", post(transfers::callback))
        .route("/admin/book", get(book::all))
        .route("/admin/book/{reference}", get(book::one))
        .route("/admin/callbacks", get(book::callbacks))
        .route("/admin/clock", put(set_clock).get(show_clock).delete(reset_clock))
        .route("/admin/shape", put(set_shape).get(show_shape).delete(reset_shape))
}

/// Request and response body of the clock.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockBody {
    /// Milliseconds ahead of true time.
    offset_ms: i64,
    /// The time that it shows; ignored in requests.
    #[serde(skip_deserializing)]
    now: Option<jiff::Timestamp>,
}

async fn set_clock(
    State(switch): State<SharedSwitch>,
    Json(clock): Json<ClockBody>,
) -> Result<Json<ClockBody>, RequestError> {
    if !(-MAX_OFFSET_MS..=MAX_OFFSET_MS).contains(&clock.offset_ms) {
        let detail = "offset_ms must be within ten years in either direction";
        return Err(Problem::bad_request("invalid_field", detail).into());
    }
    switch.settings.set_clock(&switch.pool, Some(clock.offset_ms)).await?;
    Ok(show_clock(State(switch)).await)
}

async fn reset_clock(State(switch): State<SharedSwitch>) -> Result<StatusCode, RequestError> {
    switch.settings.set_clock(&switch.pool, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn show_clock(State(switch): State<SharedSwitch>) -> Json<ClockBody> {
    let current = switch.settings.current();
    Json(ClockBody { offset_ms: current.clock_offset_ms, now: Some(current.now()) })
}

async fn set_shape(
    State(switch): State<SharedSwitch>,
    Json(shape): Json<Shape>,
) -> Result<Json<Shape>, RequestError> {
    switch.settings.set_shape(&switch.pool, Some(shape)).await?;
    Ok(Json(shape))
}

async fn reset_shape(State(switch): State<SharedSwitch>) -> Result<StatusCode, RequestError> {
    switch.settings.set_shape(&switch.pool, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn show_shape(State(switch): State<SharedSwitch>) -> Json<Shape> {
    Json(switch.settings.current().shape)
}
