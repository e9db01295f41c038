//! The switch over HTTP: `/v1` for banks, `/admin` for tests and people, and
//! what every process answers.

mod admin;
mod cancel;
mod faults;
mod input;
mod listing;
mod named;
mod recall;
mod statement;
mod transfers;

use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use service_kit::bounds::{Bounds, bounded};
use service_kit::metrics::Metrics;
use service_kit::problem::Problem;

use crate::switch::Shared;
use crate::{auth, clock, cut};

/// Bounds of a request: 64 KiB, and a minute, which is more than any scripted wait.
const BOUNDS: Bounds = Bounds {
    body_bytes: 64 * 1024,
    body_timeout: Duration::from_secs(10),
    request_timeout: Duration::from_secs(60),
};

/// All routes.
pub(crate) fn all(switch: Shared, metrics: Metrics) -> Router {
    let pool = switch.pool.clone();
    let ready = move || -> service_kit::metrics::BoxFuture<'static, Result<(), String>> {
        let pool = pool.clone();
        Box::pin(async move {
            let asked = sqlx::query("SELECT 1").execute(&pool).await;
            asked.map(|_| ()).map_err(|error| format!("the database does not answer: {error}"))
        })
    };
    let mut router = Router::new().merge(api(switch.clone()));
    if switch.config.admin {
        router = router.merge(admin::routes().with_state(switch.clone()));
    }
    let router = router.merge(service_kit::metrics::routes(metrics, ready));
    bounded(router, BOUNDS).layer(from_fn_with_state(switch, date)).layer(from_fn(cut::obey))
}

fn api(switch: Shared) -> Router {
    Router::new()
        .route("/v1/transfers", post(transfers::submit).get(listing::list))
        .route("/v1/transfers/{reference}", get(transfers::query_by_reference))
        .route("/v1/transfers/{reference}/cancel", post(cancel::by_reference))
        .route("/v1/transfers/{reference}/recall", post(recall::by_reference))
        .route("/v1/transfers/by-id/{transfer_id}", get(transfers::query_by_id))
        .route("/v1/transfers/by-id/{transfer_id}/cancel", post(cancel::by_id))
        .route("/v1/transfers/by-id/{transfer_id}/recall", post(recall::by_id))
        .route("/v1/statement", get(statement::read))
        .layer(from_fn(finish_anyway))
        .route_layer(from_fn_with_state(switch.clone(), auth::bearer))
        .with_state(switch)
}

/// The problem of something that a switch of another shape could do.
fn not_supported(code: &'static str, title: &'static str) -> Problem {
    Problem::new(StatusCode::NOT_IMPLEMENTED, code, title)
}

/// What the switch has received it carries out, whether or not the client
/// waits for the answer: a request that lands late is what banks must survive.
async fn finish_anyway(request: Request, next: Next) -> Result<Response, Problem> {
    match tokio::spawn(next.run(request)).await {
        Ok(response) => Ok(response),
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        Err(_) => Err(Problem::unavailable("the switch is stopping")),
    }
}

/// Every answer carries the switch's own clock.
async fn date(State(switch): State<Shared>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let now = switch.settings.current().now();
    let date = clock::http_date(now).and_then(|text| HeaderValue::try_from(text).ok());
    if let Some(date) = date {
        response.headers_mut().insert(header::DATE, date);
    }
    response
}
