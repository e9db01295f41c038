//! The switch put together: its database, its tasks, its listener.

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

use crate::config::Config;
use crate::cut::{CuttableListener, CuttableStream};
use crate::settings::{Current, Settings};
use crate::{MIGRATOR, callbacks, routes, settle};

/// Connections to the database.
const POOL_SIZE: u32 = 16;
/// How long a request waits for a connection before it is told to come again.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest statement, in milliseconds, waiting for locks included.
const STATEMENT_TIMEOUT_MS: &str = "10000";

/// The switch as its handlers and tasks see it.
pub(crate) struct Switch {
    pub(crate) config: Config,
    pub(crate) pool: PgPool,
    pub(crate) settings: Settings,
    /// Something may be due for settlement.
    pub(crate) settle_now: Notify,
    /// A callback may be waiting.
    pub(crate) call_now: Notify,
}

pub(crate) type Shared = Arc<Switch>;

/// A switch that serves.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    server: JoinHandle<()>,
    tasks: [JoinHandle<()>; 2],
    stop: CancellationToken,
    pool: PgPool,
}

impl Running {
    /// The address bound, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the switch has stopped, and closes its pool.
    ///
    /// # Errors
    /// When the server failed, or a task ended before it was told to.
    pub async fn finished(mut self) -> anyhow::Result<()> {
        let [settler, sender] = &mut self.tasks;
        let ended = tokio::select! {
            served = &mut self.server => served.context("the server task failed"),
            ended = settler => ended.context("the settling task failed"),
            ended = sender => ended.context("the callback task failed"),
        };
        let told = self.stop.is_cancelled();
        self.stop.cancel();
        if !self.server.is_finished() {
            (&mut self.server).await.context("the server task failed")?;
        }
        for task in self.tasks.iter_mut().filter(|task| !task.is_finished()) {
            task.await.context("a background task failed")?;
        }
        self.pool.close().await;
        ended?;
        anyhow::ensure!(told, "a part of the switch ended by itself");
        Ok(())
    }
}

/// Connects to the switch's own database, creating it if it is not there.
///
/// # Errors
/// When the server cannot be reached or does not let us; the message names the setting.
pub async fn connect(config: &Config) -> anyhow::Result<PgPool> {
    const SETTING: &str = "see MOCK_SWITCH_DATABASE_URL (database_url)";
    let url = config.database_url.as_str();
    let options = PgConnectOptions::from_str(url)
        .with_context(|| format!("the database address is malformed; {SETTING}"))?
        .application_name("mock-switch")
        .options([("statement_timeout", STATEMENT_TIMEOUT_MS)]);
    let exists = sqlx::Postgres::database_exists(url)
        .await
        .with_context(|| format!("the database server cannot be reached; {SETTING}"))?;
    if !exists {
        sqlx::Postgres::create_database(url)
            .await
            .with_context(|| format!("the database is not there and cannot be made; {SETTING}"))?;
        tracing::info!("database created");
    }
    PgPoolOptions::new()
        .max_connections(POOL_SIZE)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_with(options)
        .await
        .with_context(|| format!("the database cannot be opened; {SETTING}"))
}

/// Migrates the database and starts the listener and both tasks.
///
/// # Errors
/// When the database cannot be migrated or the address cannot be bound.
pub async fn start(
    config: Config,
    pool: PgPool,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> anyhow::Result<Running> {
    MIGRATOR.run(&pool).await.context("the switch's database cannot be migrated")?;
    let configured = Current { shape: config.shape, clock_offset_ms: config.clock_offset_ms };
    let settings = Settings::load(&pool, configured).await.context("settings cannot be read")?;
    let listener = service_kit::serve::bind(config.listen, "MOCK_SWITCH_LISTEN (listen)").await?;
    let address = listener.local_addr().context("the bound address cannot be read")?;
    let switch = Arc::new(Switch {
        config,
        pool: pool.clone(),
        settings,
        settle_now: Notify::new(),
        call_now: Notify::new(),
    });
    let sender = callbacks::Sender::new(switch.clone()).context("callbacks cannot be sent")?;

    // One ended task stops the rest, without cancelling the caller's own token.
    let stop = shutdown.child_token();
    let routes = routes::all(switch.clone(), metrics);
    let service = move |stream: &CuttableStream| Extension(stream.line()).layer(routes.clone());
    let bounds = ConnectionBounds::default();
    let server = service_kit::serve::serve_on(CuttableListener(listener), service, bounds, stop.clone());
    tracing::info!(name = switch.config.name, callbacks = switch.config.callback_url, "switch open");
    Ok(Running {
        address,
        server: tokio::spawn(server),
        tasks: [tokio::spawn(settle::run(switch, stop.clone())), tokio::spawn(sender.run(stop.clone()))],
        stop,
        pool,
    })
}
