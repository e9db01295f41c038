//! Start and stop of the switch: its database, its listener and its background tasks.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Extension;
use service_kit::connection::ConnectionBounds;
use service_kit::metrics::Metrics;
use sqlx::PgPool;
use sqlx::migrate::MigrateDatabase;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;

use crate::callbacks::CallbackSender;
use crate::config::Config;
use crate::drop_connection::{DroppableListener, DroppableStream};
use crate::settings::{CurrentSettings, Settings};
use crate::state::Switch;
use crate::{MIGRATOR, completion_task, routes};

/// Connections to the database.
const POOL_SIZE: u32 = 16;
/// Longest wait of a request for a connection; then it is answered 503.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest statement, in milliseconds, waits for locks included.
const STATEMENT_TIMEOUT_MS: &str = "10000";

/// A running switch.
#[derive(Debug)]
pub struct RunningSwitch {
    address: SocketAddr,
    server: JoinHandle<()>,
    tasks: [JoinHandle<()>; 2],
    stop: CancellationToken,
    pool: PgPool,
}

impl RunningSwitch {
    /// The bound address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the switch has stopped, and closes its pool.
    ///
    /// # Errors
    /// The server failed, or a task ended before the shutdown.
    pub async fn finished(mut self) -> anyhow::Result<()> {
        let [completion, callbacks] = &mut self.tasks;
        let ended = tokio::select! {
            result = &mut self.server => result.context("the HTTP server task of the mock switch failed"),
            result = completion => result.context("the task of the mock switch that completes transfers failed"),
            result = callbacks => result.context("the task of the mock switch that sends callbacks failed"),
        };
        let requested = self.stop.is_cancelled();
        self.stop.cancel();
        if !self.server.is_finished() {
            (&mut self.server).await.context("the HTTP server task of the mock switch failed")?;
        }
        for task in self.tasks.iter_mut().filter(|task| !task.is_finished()) {
            task.await.context("a background task of the mock switch failed")?;
        }
        self.pool.close().await;
        ended?;
        anyhow::ensure!(requested, "a task of the mock switch ended before the shutdown");
        Ok(())
    }
}

/// Connects to the switch's own database, and creates it if it does not exist.
///
/// # Errors
/// The database server is unreachable or denies access; the message names the setting.
pub async fn connect(config: &Config) -> anyhow::Result<PgPool> {
    const SETTING: &str = "see MOCK_SWITCH_DATABASE_URL (database_url)";
    let url = config.database_url.as_str();
    let options = PgConnectOptions::from_str(url)
        .with_context(|| format!("the database address of the mock switch is malformed; {SETTING}"))?
        .application_name("mock-switch")
        .options([("statement_timeout", STATEMENT_TIMEOUT_MS)]);
    let exists = sqlx::Postgres::database_exists(url)
        .await
        .with_context(|| format!("the database server of the mock switch is unreachable; {SETTING}"))?;
    if !exists {
        sqlx::Postgres::create_database(url).await.with_context(|| {
            format!("the database of the mock switch does not exist and could not be created; {SETTING}")
        })?;
        tracing::info!("the mock switch created its database");
    }
    PgPoolOptions::new()
        .max_connections(POOL_SIZE)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_with(options)
        .await
        .with_context(|| format!("the mock switch could not connect to its database; {SETTING}"))
}

/// Migrates the database, and starts the listener and both background tasks.
///
/// # Errors
/// The database could not be migrated, or the address could not be bound.
pub async fn start(
    config: Config,
    pool: PgPool,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> anyhow::Result<RunningSwitch> {
    MIGRATOR.run(&pool).await.context("the mock switch's database could not be migrated")?;
    let configured =
        CurrentSettings { shape: config.configured_shape(), clock_offset_ms: config.clock_offset_ms };
    let settings = Settings::load(&pool, configured)
        .await
        .context("the settings of the mock switch could not be read from its database")?;
    let listener = service_kit::serve::bind(config.listen, "MOCK_SWITCH_LISTEN (listen)").await?;
    let address = listener.local_addr().context("the bound address could not be read")?;
    let switch = Arc::new(Switch {
        config,
        pool: pool.clone(),
        settings,
        completion_due: Notify::new(),
        callback_due: Notify::new(),
    });
    let sender =
        CallbackSender::new(switch.clone()).context("the HTTP client for callbacks could not be built")?;

    // A child token: the end of one task stops the others without cancelling the caller's token.
    let stop = shutdown.child_token();
    let routes = routes::all(switch.clone(), metrics);
    let service = move |stream: &DroppableStream| Extension(stream.drop_flag()).layer(routes.clone());
    let bounds = ConnectionBounds::default();
    let server = service_kit::serve::serve_on(DroppableListener(listener), service, bounds, stop.clone());
    tracing::info!(
        name = switch.config.name,
        callback_url = switch.config.callback_url,
        "the process mock-switch is ready"
    );
    Ok(RunningSwitch {
        address,
        server: tokio::spawn(server),
        tasks: [
            tokio::spawn(completion_task::run(switch, stop.clone())),
            tokio::spawn(sender.run(stop.clone())),
        ],
        stop,
        pool,
    })
}
