//! The HTTP API: `/v1` for banks, `/admin` for tests, and the health and metrics endpoints of every process.

mod admin;
mod cancel;
mod faults;
mod input;
mod listing;
mod recall;
mod selector;
mod statement;
mod transfers;

use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use service_kit::bounds::{RequestBounds, bounded};
use service_kit::metrics::Metrics;
use service_kit::problem::Problem;

use crate::state::SharedSwitch;
use crate::{auth, clock, drop_connection};

/// Bounds of a request: 64 KiB and a minute, which exceeds every scripted delay.
const BOUNDS: RequestBounds = RequestBounds {
    body_bytes: 64 * 1024,
    body_timeout: Duration::from_secs(10),
    request_timeout: Duration::from_secs(60),
};

/// All routes.
pub(crate) fn all(switch: SharedSwitch, metrics: Metrics) -> Router {
    let pool = switch.pool.clone();
    let ready = move || -> service_kit::metrics::Readiness {
        let pool = pool.clone();
        Box::pin(async move {
            let answered = sqlx::query("SELECT 1").execute(&pool).await;
            answered
                .map(|_| Vec::new())
                .map_err(|error| format!("the switch's database does not answer: {error}"))
        })
    };
    let mut router = Router::new().merge(api(switch.clone()));
    if switch.config.admin {
        router = router.merge(
            admin::routes()
                .route_layer(from_fn_with_state(switch.clone(), auth::bearer_for_changes))
                .with_state(switch.clone()),
        );
    }
    let router = router.merge(service_kit::metrics::routes(metrics, ready));
    bounded(router, BOUNDS)
        .layer(from_fn_with_state(switch, add_date))
        .layer(from_fn(drop_connection::set_drop_flag))
}

fn api(switch: SharedSwitch) -> Router {
    Router::new()
        .route("/v1/transfers", post(transfers::submit).get(listing::list))
        .route("/v1/transfers/{reference}", get(transfers::query_by_reference))
        .route("/v1/transfers/{reference}/cancel", post(cancel::by_reference))
        .route("/v1/transfers/{reference}/recall", post(recall::by_reference))
        .route("/v1/transfers/by-id/{transfer_id}", get(transfers::query_by_id))
        .route("/v1/transfers/by-id/{transfer_id}/cancel", post(cancel::by_id))
        .route("/v1/transfers/by-id/{transfer_id}/recall", post(recall::by_id))
        .route("/v1/statement", get(statement::read))
        .layer(from_fn(process_despite_disconnect))
        .route_layer(from_fn_with_state(switch.clone(), auth::bearer))
        .with_state(switch)
}

/// 501: the shape of this switch lacks the capability.
fn not_supported(code: &'static str, title: &'static str) -> Problem {
    Problem::new(StatusCode::NOT_IMPLEMENTED, code, title)
}

/// Processes a received request even if its client disconnects: banks must survive requests that take effect late.
async fn process_despite_disconnect(request: Request, next: Next) -> Result<Response, Problem> {
    match tokio::spawn(next.run(request)).await {
        Ok(response) => Ok(response),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Problem::unavailable(
            "the mock switch is stopping and did not process the request; retry the request later",
        )),
    }
}

/// Adds the switch's own time as `Date` header.
async fn add_date(State(switch): State<SharedSwitch>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let now = switch.settings.current().now();
    let date = clock::http_date(now).and_then(|text| HeaderValue::try_from(text).ok());
    if let Some(date) = date {
        response.headers_mut().insert(header::DATE, date);
    }
    response
}
