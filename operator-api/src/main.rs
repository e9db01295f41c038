//! The process operator-api.

use operator_api::Config;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    service_kit::telemetry::init("operator-api");
    let config: Config = service_kit::config::load("PAYMENTS", "PAYMENTS_CONFIG")?;
    let metrics = service_kit::metrics::install()?;
    let shutdown = service_kit::shutdown::on_signals();
    let traces = trace_kit::Exporter::start("operator-api")?;
    let ended = operator_api::run(config, metrics, shutdown).await;
    traces.stop().await;
    ended
}
