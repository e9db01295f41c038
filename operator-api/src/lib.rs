//! The operators' API, over HTTP, on a listener of its own: operators log in, see what waits for them, propose, and confirm what another
//! one proposed.
//!
//! Who acts is who has the session, and nothing in a request names an operator. The roles are checked here, and again by the database,
//! which accepts a decision of this process only in a session of the operator whom it names. The process is stateless: any number may
//! run.
//!
//! | file | responsibility |
//! |---|---|
//! | [`config`] | the options |
//! | `app` | the routes and the layers around them |
//! | `auth` | whose session a request has, and with which role |
//! | `oidc` | which identity an ID token of the OpenID provider proves |
//! | `delivery` | confirmed decisions to workflows |
//! | `login_rate` | how often an address may try to log in |
//! | `routes` | one file per subject |
//! | `error` | errors as problems |

mod app;
mod auth;
pub mod config;
mod delivery;
mod error;
mod login_rate;
mod oidc;
mod routes;

use monitoring::measure;
use monitoring::metrics::Process;
use payment_ledger::Ledger;
use service_kit::metrics::{Metrics, log_warnings};
use tokio_util::sync::CancellationToken;

pub use app::router;
pub use config::{Config, SetupError};
pub use oidc::OidcSetupError;

/// The OpenAPI document, formatted for reading.
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
    let (listen, metrics_listen) = (config.operator_api.listen, config.operator_api.metrics_listen);
    let pool = config.database.pool("operator-api")?;
    config.temporal.check()?;
    measure::start(Process::OperatorApi, pool.inner().clone(), shutdown.clone());
    let readiness = Ledger::new(pool.clone()).readiness();
    tokio::spawn(log_warnings(readiness.clone(), shutdown.clone()));
    let metrics_router = service_kit::metrics::routes(metrics, readiness);
    let router = router(config, pool, shutdown.clone())?;
    let setting = "PAYMENTS_OPERATOR_API__LISTEN (operator_api.listen)";
    let operators = service_kit::serve::serve(listen, setting, router, shutdown.clone());
    let setting = "PAYMENTS_OPERATOR_API__METRICS_LISTEN (operator_api.metrics_listen)";
    let internal = service_kit::serve::serve(metrics_listen, setting, metrics_router, shutdown.clone());
    tokio::try_join!(operators, internal)?;
    Ok(())
}
