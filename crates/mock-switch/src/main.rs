//! The process `mock-switch`: reads the configuration, and runs until a signal.

use anyhow::Context;
use mock_switch::Config;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    service_kit::telemetry::init("mock-switch");
    let config: Config = service_kit::config::load("MOCK_SWITCH", "MOCK_SWITCH_CONFIG")?;
    let metrics = service_kit::metrics::install()?;
    mock_switch::METRICS.iter().for_each(service_kit::metrics::Metric::describe);
    let shutdown = service_kit::shutdown::on_signals();
    let pool = mock_switch::connect(&config).await?;
    let running = mock_switch::start(config, pool, metrics, shutdown).await?;
    running.finished().await.context("mock-switch failed")
}
