//! The payments API and the switches' callbacks, over HTTP.
//!
//! This process needs PostgreSQL only: one transaction accepts a payment (claim of the idempotency key, payment row), and
//! payment workers start accepted payments from the table; a callback is stored before its workflow is signalled. Temporal may
//! be unavailable for all of that. The process is stateless: any number may run.
//!
//! It moves no money, starts no workflow and decides nothing about a payment.
//!
//! | file | responsibility |
//! |---|---|
//! | [`config`] | the options |
//! | `app` | the routes and the layers around them |
//! | `auth`, `extract` | authentication and scopes; raw bodies |
//! | `limits` | requests per second of a client |
//! | `admission` | requests in flight of the process |
//! | `streams` | event streams and updates of payments |
//! | `idempotent` | claims of requests with a transaction of their own |
//! | `routes` | one file per route |
//! | `paging` | pages of list routes |
//! | `error` | errors as problems |
//! | `request_span` | span and duration of each request |
//! | `workflow_delivery` | inbox messages to workflows |

mod admission;
mod app;
mod auth;
pub mod config;
mod error;
mod extract;
mod idempotent;
mod limits;
mod paging;
mod request_span;
mod routes;
mod streams;
mod workflow_delivery;

use monitoring::measure;
use monitoring::metrics::Process;
use payment_ledger::{DatabaseOptions, Ledger};
use service_kit::metrics::{Metrics, log_warnings};
use tokio_util::sync::CancellationToken;

pub use app::router;
pub use auth::key_hash;
pub use config::{Config, SetupError};

/// The OpenAPI document that `/openapi.json` serves, formatted for reading.
///
/// # Errors
/// If it cannot be serialized.
pub fn openapi_document() -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&app::document())? + "\n")
}

/// Serves until `shutdown`. The database may be unavailable at the start: until it answers, `/ready` reports it and requests
/// are answered 503.
///
/// # Errors
/// A refused configuration, or an address that cannot be bound.
pub async fn run(config: Config, metrics: Metrics, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (listen, metrics_listen) = (config.api.listen, config.api.metrics_listen);
    let bounds = config.api.connection_bounds()?;
    let pool = config.database.pool("payments-api")?;
    let for_reads =
        DatabaseOptions { max_connections: config.api.read_connections, ..config.database.clone() };
    let reads = for_reads.pool("payments-api-reads")?;
    config.temporal.check()?;
    measure::start(Process::PaymentsApi, pool.inner().clone(), shutdown.clone());
    let readiness = Ledger::new(pool.clone()).readiness();
    tokio::spawn(log_warnings(readiness.clone(), shutdown.clone()));
    let metrics_router = service_kit::metrics::routes(metrics, readiness);
    let router = router(config, pool, reads, shutdown.clone())?;
    let listener = service_kit::serve::bind(listen, "PAYMENTS_API__LISTEN (api.listen)").await?;
    let public = async {
        service_kit::serve::serve_on(listener, move |_| router.clone(), bounds, shutdown.clone()).await;
        Ok(())
    };
    let setting = "PAYMENTS_API__METRICS_LISTEN (api.metrics_listen)";
    let internal = service_kit::serve::serve(metrics_listen, setting, metrics_router, shutdown.clone());
    tokio::try_join!(public, internal)?;
    Ok(())
}
