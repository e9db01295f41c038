//! The payments API and the switches' callbacks, over HTTP.
//!
//! It needs PostgreSQL only: a payment is accepted by one transaction (claim of the idempotency key,
//! payment row), and workers pull it from there; a callback is stored before anybody is told. Temporal
//! may be down for all of that. Stateless: any number of these processes may run.
//!
//! It moves no money, starts no workflow and decides nothing about a payment.
//!
//! | file | question |
//! |---|---|
//! | [`config`] | how is it set up? |
//! | `app` | which routes are there, and what stands around them? |
//! | `auth`, `extract` | who calls, may it, under which key, with which body? |
//! | `limits` | how much may a client do? |
//! | `streams` | who may watch a payment, and how are they told? |
//! | `idempotent` | is it a repeat? |
//! | `routes` | one file per route |
//! | `error` | what does the caller see when it fails? |
//! | `whole` | is a number whole, however it is written? |
//! | `nudge`, `notify` | who else is told? |

mod admission;
mod app;
mod auth;
pub mod config;
mod error;
mod extract;
mod idempotent;
mod limits;
mod notify;
mod nudge;
mod observe;
mod routes;
mod streams;
mod whole;

use monitoring::measure;
use monitoring::metrics::Process;
use service_kit::metrics::Metrics;
use tokio_util::sync::CancellationToken;

pub use app::router;
pub use auth::key_hash;
pub use config::{Config, SetupError};

/// Serves until `shutdown`. The database need not be there yet: until it is, `/ready` says so and
/// requests are answered 503.
///
/// # Errors
/// A configuration that is refused, or an address that cannot be bound.
pub async fn run(config: Config, metrics: Metrics, shutdown: CancellationToken) -> anyhow::Result<()> {
    let listen = config.api.listen;
    let bounds = config.api.connection_bounds()?;
    let pool = config.database.pool("payments-api")?;
    measure::start(Process::PaymentsApi, pool.clone(), shutdown.clone());
    let router = router(config, pool, metrics, shutdown.clone())?;
    let setting = "PAYMENTS_API__LISTEN (api.listen)";
    let listener = service_kit::serve::bind(listen, setting).await?;
    service_kit::serve::serve_on(listener, move |_| router.clone(), bounds, shutdown).await;
    Ok(())
}
