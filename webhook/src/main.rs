//! The webhook as a process: configuration in, signals honoured, nothing else.

use webhook::Config;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    service_kit::telemetry::init("webhook");
    let config: Config = service_kit::config::load("PAYMENTS", "PAYMENTS_CONFIG")?;
    let metrics = service_kit::metrics::install()?;
    let shutdown = service_kit::shutdown::on_signals();
    webhook::run(config, metrics, shutdown).await
}
